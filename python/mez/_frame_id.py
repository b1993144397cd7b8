"""What identifies a frame."""

from typing import NamedTuple


class FrameId(NamedTuple):
    """The identity of a frame of one camera. Frames are ordered by it, independent of clocks.

    Attributes:
        epoch: The number of the camera broker's start: a restart makes it one higher.
        sequence: The number of the frame in this epoch, from 0, without gaps at the camera.
    """

    epoch: int
    sequence: int

    def __str__(self) -> str:
        """`3/1042`."""
        return f"{self.epoch}/{self.sequence}"
