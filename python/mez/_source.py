"""Whether the source of a camera gives frames."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

SourceState: TypeAlias = Literal["live", "stalled", "lost", "ended"]
"""All states of a camera's source."""

_SENTENCES = {
    "stalled": "the camera's source has stalled",
    "lost": "the camera's source is lost",
    "ended": "the camera's source has ended",
}


@dataclass(frozen=True, slots=True)
class Source:
    """What a camera gets its frames from: a publisher, or a file, a device or a network camera.

    Attributes:
        state: `"live"`: it gives frames; `"stalled"`: it has given none for several intervals of its own
            rate; `"lost"`: it is gone or cannot be read; `"ended"`: it ended in good order, such as a
            publisher that was closed.
        reason: Why, in words; empty if there is nothing to say.
        lasts_s: For how many seconds it has been so, when this was told; `None` if nobody knows.
        retry_in_s: In how many seconds a lost source is tried again; `None` if it is not, or nobody knows.
    """

    state: SourceState
    reason: str = ""
    lasts_s: float | None = None
    retry_in_s: float | None = None

    def __str__(self) -> str:
        """`the camera's source is lost: connection refused; next try in 4 s`."""
        what = _SENTENCES.get(self.state, "the camera's source gives frames")
        because = f": {self.reason}" if self.reason else ""
        retry = "" if self.retry_in_s is None else f"; next try in {self.retry_in_s:.0f} s"
        return what + because + retry


def source(told: tuple[SourceState, str, float | None, float | None]) -> Source:
    """A source as the native module tells of it."""
    return Source(*told)
