"""What identifies a frame."""

from typing import NamedTuple


class FrameId(NamedTuple):
    """Identifies a frame of one camera. Frames are ordered by it, whatever the clocks do.

    Attributes:
        epoch: Counts the starts of the camera's broker.
        sequence: Counts the frames since then, from 0, without holes at the camera.
    """

    epoch: int
    sequence: int

    def __str__(self) -> str:
        """`3/1042`."""
        return f"{self.epoch}/{self.sequence}"
