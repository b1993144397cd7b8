"""The state of a camera's source."""

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
    """The state of a camera's source: a publisher, or a file, a device or a network camera.

    Attributes:
        state: `"live"`: it gives frames. `"stalled"`: it has given none for several of its usual intervals.
            `"lost"`: it has failed or cannot be read. `"ended"`: it ended normally, for example the publisher
            was closed.
        reason: The reason, for people. Empty if there is none.
        lasts_s: For how many seconds it has had this state, at the time of the report. `None` if unknown.
        retry_in_s: For a lost source: seconds until the next try. `None` if there is none, or it is unknown.
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
    """A source from the parts that the native module returns."""
    return Source(*told)
