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

    A rung is one way to encode a frame before it is sent. Its name contains all settings:

    ```text
    original              the frame as it was published
    jpeg/w640/q70/420     JPEG: 640 pixels wide, quality 70 (1 to 100), colour 420 (or 422, 444, gray)
    tiles/w640/q70/420    the same, but only the tiles of the picture that have changed
    h264/w640/q32         H.264: 640 pixels wide, quantiser 32 (10 to 51; less is finer)
    h264/q32/skip1        at the camera's width, and after each frame that is sent, one is skipped
    ```

    Without `w…`, a frame keeps its width. The height follows from the width. With a profile, a camera chooses
    from the rungs of the profile instead. `Frame.rung` names the rung of a frame. `quality` of `mez.read`
    accepts rungs of still images (`original`, `jpeg/…`). `mez profile run --rungs` measures rungs that you
    name.

    Args:
        width: Width of the camera's frames, in pixels.
        height: Height of the camera's frames, in pixels.
        family: How the camera encodes. `"h264"`: the default. `"tiles"`: what the camera uses if the H.264
            codec has failed. `"jpeg"`: every frame can be decoded without earlier ones.

    Raises:
        ArgumentError: An argument has an invalid value; `field` names the argument.

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
