"""Names of rungs."""

from typing import Literal

from mez import _arguments as arguments
from mez import _native

# As wide or high as a JPEG can be.
_SIDE_MAX = 65_535


def rungs(
    width: int = 1920, height: int = 1080, *, family: Literal["h264", "tiles", "jpeg"] = "h264"
) -> list[str]:
    """List the default ladder: the rungs that a camera chooses from without a profile, best first.

    A rung is what is done to a frame before it is sent. Its name says all of it:

    ```text
    original              the frame as it was published
    jpeg/w640/q70/420     JPEG: 640 pixels wide, quality 70 (1 to 100), colour 420 (or 422, 444, gray)
    tiles/w640/q70/420    the same, but only those tiles that have changed
    h264/w640/q32         H.264: 640 pixels wide, quantiser 32 (10 to 51; less is finer)
    h264/q32/skip1        at the camera's width, and after each frame one is left out
    ```

    Without `w…` a frame keeps its width; the height follows. With a profile, a camera chooses from the rungs
    of the profile instead. `Frame.rung` names the rung of a frame, `quality` of `mez.read` takes one that
    makes stills (`original`, `jpeg/…`), and `mez profile run --rungs` measures those that you name.

    Args:
        width: Pixels in a row of the camera's frames.
        height: Rows of them.
        family: What the camera makes: `"h264"`; `"tiles"`, if the H.264 codec has failed; `"jpeg"`, if no
            frame may need an earlier one.

    Raises:
        ArgumentError: An argument has a bad value; `field` names it.

    Example:
        ```python
        for frame in mez.read("dock/cam1", since="-10m", quality=mez.rungs(1280, 720, family="jpeg")[3]):
            print(frame.rung, frame.image.shape)
        ```
    """
    return _native.default_rungs(
        arguments.whole("width", width, 1, _SIDE_MAX),
        arguments.whole("height", height, 1, _SIDE_MAX),
        arguments.text("family", family),
    )
