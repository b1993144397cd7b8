"""`mez demo --pipeline`: a pipeline that comes with Mez, on cameras of this process.

An edge runs in this process, and `mez pipeline run` in a process of its own. The cameras publish video, keep
their newest frames, and draw the replies into them.
"""

import argparse
import contextlib
import json
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import cv2
from rich.console import Console

import mez
from mez._commands import folder
from mez._detections import Detections
from mez._figures import number_within
from mez._interrupt import EndedEarlyError, Interrupt
from mez._processes import Child, ProcessError, mez_command
from mez.apps.boxes import Box, iou
from mez.apps.recognition import DetectObjects
from mez.demo import photographs
from mez.demo.detector import Finding
from mez.demo.logs import log_to
from mez.demo.options import needed_video
from mez.demo.photographs import Shown
from mez.demo.pictures import Gallery
from mez.pipeline import file, shipped, status
from mez.pipeline.status import Status

KEPT_MAX: Final = 64
"""The most frames that a camera keeps until their replies come."""

READY_SECONDS_MAX: Final = 60.0
"""How long the workers may take to load their networks."""

DRAIN_S: Final = 3.0
LINE_EVERY_S: Final = 3.0
IOU_MIN: Final = 0.4
"""The least overlap (IoU) of a box with a shown face that counts as found."""

NO_CLAIM: Final = (
    "All faces are one photograph of one person, shifted, scaled, mirrored, and lit differently. This shows "
    "how the pipeline works. It does not show how well it tells people apart, which needs many faces."
)


@dataclass(slots=True)
class Score:
    """Counts of the frames of all cameras.

    Attributes:
        published: Frames.
        answered: Frames for which a reply came.
        shown: Faces on answered frames, if the video has known faces.
        found: Boxes on a face.
        named: Boxes on a face with the right name.
        wrong: Boxes that are not on a face.
        answer_ms: Mean milliseconds from publishing to the reply; `None` before the first.
    """

    published: int = 0
    answered: int = 0
    shown: int = 0
    found: int = 0
    named: int = 0
    wrong: int = 0
    answer_ms: float | None = None


def run(arguments: Sequence[str]) -> int:
    """Run the demo of a pipeline, and return its exit code: 0 if replies came."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    with (
        tempfile.TemporaryDirectory(prefix="mez-demo-", ignore_cleanup_errors=True) as work,
        Interrupt() as interrupt,
        log_to(Path(work) / "application.log"),
    ):
        try:
            demo = Demo(options, Path(work), console, interrupt)
            return demo.run()
        except (ProcessError, mez.Error) as error:
            console.print(f"mez demo: {error}", style="bold red", markup=False, soft_wrap=True)
        except EndedEarlyError:
            console.print("mez demo: ended before frames flowed")
        except KeyboardInterrupt:
            console.print("mez demo: stopped at once", style="bold red")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mez demo --pipeline",
        description="Runs a pipeline that comes with Mez on cameras of this machine: an edge, "
        "`mez pipeline run` with its workers, and cameras that draw the replies into their frames. "
        "Writes pictures, and a table of the stages.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--pipeline", choices=shipped.names(), required=True, help="the pipeline")
    add("--seconds", type=number_within(1, 86400), default=20.0, help="seconds of the demo [20]")
    add("--cameras", type=int, choices=range(1, 9), default=2, metavar="N", help="cameras, 1 to 8 [2]")
    add("--fps", type=number_within(0.5, 60), default=3.0, help="frames per second of each camera [3]")
    add("--video", type=Path, metavar="FILE", help="video of the cameras [faces: drawn; objects: the demo's]")
    add(
        "--people",
        type=Path,
        metavar="DIR",
        help="known people, as in mez pipeline enrol [those of the drawn video]",
    )
    add("--json", type=Path, metavar="FILE", help="file for the figures [none]")
    add("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="folder for pictures [out/demo]")
    add("--headless", action="store_true", help="no effect, because this demo always prints lines")
    return parser


class Camera:
    """A camera: publishes video on one thread, and takes replies on another.

    Args:
        name: Its name.
        edge: The edge.
        video: What it shows.
        every_s: Seconds from frame to frame.
        answered: Called, by a thread, with a frame, what was replied, and after how many milliseconds.
    """

    def __init__(
        self,
        name: str,
        edge: mez.Edge,
        video: Iterator[Shown],
        every_s: float,
        answered: "Callable[[Camera, mez.FrameId, Shown, Detections, float], None]",
    ) -> None:
        self.name = name
        self.published = 0
        self.failure: BaseException | None = None
        self._video = video
        self._every_s = every_s
        self._answered = answered
        self._publisher = mez.publisher(name, edge=edge)
        self._kept: OrderedDict[mez.FrameId, tuple[Shown, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._publish, self._take)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop publishing; replies are still taken."""
        self._over.set()
        self._threads[0].join()

    def close(self) -> None:
        """End the camera."""
        self.stop()
        self._publisher.close()
        self._threads[1].join()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failure = error
            raise

    def _publish(self) -> None:
        next_s = time.monotonic()
        for shown in self._video:
            if self._over.wait(max(0.0, next_s - time.monotonic())):
                return
            next_s = max(next_s + self._every_s, time.monotonic())
            # Held while it is sent, so that `_take` finds the frame when its reply comes.
            with self._lock:
                sent = self._publisher.send(shown.image)
                if sent is not None:
                    self._kept[sent] = (shown, time.monotonic())
                    self.published += 1
                while len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)

    def _take(self) -> None:
        for reply in self._publisher.replies():
            at_s = time.monotonic()
            with self._lock:
                kept = self._kept.pop(reply.frame, None)
            if kept is not None and reply.detections is not None:
                shown, sent_s = kept
                self._answered(self, reply.frame, shown, reply.detections, (at_s - sent_s) * 1e3)


class Demo:
    """One run.

    Args:
        options: The command line.
        work: An empty folder.
        console: Where people read.
        interrupted: Tells whether to end early.
    """

    def __init__(
        self, options: argparse.Namespace, work: Path, console: Console, interrupted: Callable[[], bool]
    ) -> None:
        self._options = options
        self._work = work
        self._console = console
        self._interrupted = interrupted
        self._lock = threading.Lock()
        self._score = Score()
        self._answer_ms = 0.0
        self._place = folder("pipelines", f"demo-{options.pipeline}", work / "state")

    def run(self) -> int:
        """Run it, and print the results.

        Raises:
            ProcessError: The pipeline did not start.
            mez.Error: A package or a video is missing, or people cannot be learnt.
            EndedEarlyError: It was interrupted before frames flowed.
        """
        videos = [self._video(number) for number in range(self._options.cameras)]
        if self._options.pipeline == "faces":
            self._enrol()
        else:
            DetectObjects()  # raises early if something is missing
        with mez.edge() as edge, contextlib.ExitStack() as open_ones:
            child = Child("pipeline", self._command(edge), self._work / "pipeline.log")
            open_ones.callback(child.close)
            open_ones.callback(child.stop, DRAIN_S + 5.0)
            child.start()
            self._await_running(child)
            self._gallery = Gallery(time.monotonic(), self._options.seconds)
            cameras = [
                Camera(f"dock/cam{number}", edge, video, 1 / self._options.fps, self._answered)
                for number, video in enumerate(videos, 1)
            ]
            for camera in cameras:
                open_ones.callback(camera.close)
                camera.start()
            told = self._watch(child, cameras)
            for camera in cameras:
                camera.stop()
            # Workers finish their frames; then the cameras end.
            child.stop(DRAIN_S + 5.0)
        return self._tell(told, cameras, child)

    def _video(self, number: int) -> Iterator[Shown]:
        path: Path | None = self._options.video
        if path is None and self._options.pipeline == "faces":
            photographs.astronaut()  # raises early if the package is missing
            return photographs.faces(number)
        return photographs.film(needed_video(path), number)

    def _enrol(self) -> None:
        from mez.apps.enrol import enrol

        folder: Path | None = self._options.people
        if folder is None:
            folder = self._work / "people"
            (folder / photographs.PERSON).mkdir(parents=True)
            cv2.imwrite(str(folder / photographs.PERSON / "astronaut.png"), photographs.astronaut())
        for line in list(enrol(folder, self._work / "people.json"))[:-1]:
            self._console.print(f"  known: {line}", style="dim", markup=False)

    def _command(self, edge: mez.Edge) -> list[str]:
        """The command that runs the pipeline: a file whose base is the pipeline that comes with Mez."""
        name = self._options.pipeline
        first = next(iter(file.read(shipped.place(name)).stages))
        lines = [
            f'[pipeline]\nname = "demo-{name}"\nbase = "{name}"\ndrain_s = {DRAIN_S}',
            f'[mez]\nedge = "unix://{edge.socket}"',
            f'[stage.{first}]\ncameras = "dock/*"',
        ]
        if name == "faces":
            lines.append(f"[stage.classify.options]\nknown = {json.dumps(str(self._work / 'people.json'))}")
            # Frames are answered even if they are late.
            lines.append("[stage.embed.options]\nstale_s = 60.0")
        path = self._work / "pipeline.toml"
        path.write_text("\n".join(lines) + "\n")
        return mez_command("pipeline", "run", str(path), "--state", str(self._work / "state"))

    def _await_running(self, child: Child) -> None:
        with self._console.status("starting workers, which load their networks …"):
            limit_s = time.monotonic() + READY_SECONDS_MAX
            while not self._interrupted():
                told = status.read(self._place)
                if told is not None and told.state == "running" and _is_ready(told):
                    return
                exited = child.poll()
                if exited is not None or time.monotonic() > limit_s:
                    what = str(exited) if exited else f"was not ready within {READY_SECONDS_MAX:.0f} s"
                    raise ProcessError(f"the pipeline {what}.{child.last_words()}")
                time.sleep(0.05)
        raise EndedEarlyError

    def _watch(self, child: Child, cameras: Sequence[Camera]) -> Status | None:
        """Wait until the time is over, and return the last status of the pipeline."""
        ends_s = time.monotonic() + self._options.seconds
        next_s = time.monotonic() + LINE_EVERY_S
        told = None
        while time.monotonic() < ends_s and not self._interrupted():
            if child.poll() is not None or any(camera.failure for camera in cameras):
                break
            told = status.read(self._place) or told
            if time.monotonic() >= next_s:
                next_s += LINE_EVERY_S
                published = sum(camera.published for camera in cameras)
                self._console.print(f"  {published} frames published, {self._score.answered} answered")
            time.sleep(0.1)
        return told

    def _answered(
        self, camera: Camera, frame: mez.FrameId, shown: Shown, found: Detections, answer_ms: float
    ) -> None:
        """Score a reply, and keep its frame if it makes a good picture."""
        boxes = _boxes(found)
        with self._lock:
            self._answer_ms += answer_ms
            self._score.answered += 1
            if shown.truth is not None:
                _add(self._score, shown.truth, boxes)
        self._gallery.keep(
            Finding(
                camera=camera.name,
                epoch=frame.epoch,
                sequence=frame.sequence,
                image=shown.image,
                boxes=tuple(boxes),
                age_ms=answer_ms,
                detector_ms=0.0,
                at_s=time.monotonic(),
                note=f"  answered after {answer_ms:.0f} ms",
            )
        )

    def _tell(self, told: Status | None, cameras: Sequence[Camera], child: Child) -> int:
        score, console = self._score, self._console
        score.published = sum(camera.published for camera in cameras)
        if score.answered:
            score.answer_ms = round(self._answer_ms / score.answered, 1)
        if told is not None:
            console.print(status.shown(told))
        album = self._gallery.write(self._options.out)
        console.print(
            f"{score.answered} of {score.published} frames were answered"
            + (f", {score.answer_ms:.0f} ms after they were published (mean)." if score.answered else ".")
        )
        if self._options.video is None and self._options.pipeline == "faces":
            console.print(
                f"They showed {score.shown} faces: {score.found} were found, and {score.named} got the right "
                f"name. {score.wrong} boxes were not on a face."
            )
            console.print(NO_CLAIM)
        if album.sheet is not None:
            console.print(
                f"Pictures: {album.sheet}, and {len(album.pictures)} single ones beside it", markup=False
            )
        if self._options.json is not None:
            figures = {
                "pipeline": self._options.pipeline,
                "frames": asdict(score),
                "stages": {} if told is None else {name: asdict(of) for name, of in told.stages.items()},
                "pictures": [str(path) for path in album.pictures],
            }
            self._options.json.write_text(json.dumps(figures, indent=2) + "\n")
        failed = [camera for camera in cameras if camera.failure is not None]
        for camera in failed:
            console.print(f"{camera.name} failed: {camera.failure}", style="bold red", markup=False)
        if not score.answered:
            console.print(f"No frame was answered.{child.last_words()}", style="bold red", markup=False)
        return 0 if score.answered and not failed else 1


def _is_ready(told: Status) -> bool:
    return all(stage.ready == stage.workers for stage in told.stages.values())


def _boxes(found: Detections) -> list[Box]:
    names = found.class_names or [""] * len(found)
    scores = [1.0] * len(found) if found.scores is None else found.scores.tolist()
    return [
        Box(left, top, right - left, bottom - top, score, name)
        for (left, top, right, bottom), score, name in zip(found.xyxy.tolist(), scores, names, strict=True)
    ]


def _add(score: Score, truth: Sequence[Box], boxes: Sequence[Box]) -> None:
    score.shown += len(truth)
    for box in boxes:
        meant = [face for face in truth if iou(face, box) >= IOU_MIN]
        score.found += bool(meant)
        score.named += any(face.label == box.label for face in meant)
        score.wrong += not meant
