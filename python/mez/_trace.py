"""Where a frame was when."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a frame was when, on its way from the camera into the application's hands.

    The stages, of which a frame comes by those that concern it:

    | stage | at the camera |
    | --- | --- |
    | `published` | its broker found the frame in its log |
    | `considered`, `chosen` | the controller began to look at what to make of it, and had chosen |
    | `encoding`, `encoded` | a codec began with it, and was done |
    | `queued` | the broker gave it to the link |
    | `sent` | the first byte was given to the transport |
    | **stage** | **at the edge** |
    | `arriving`, `arrived` | the header was there, and the last byte |
    | `decoded` | a still had been made of it, where it is video and the application takes stills |
    | `logged` | it stood in the replica log |
    | `handed` | it was taken from there for this subscription, and began to be handed over |
    | **stage** | **in this program** |
    | `received` | the client library had all of it |
    | `taken` | the application had it; video has been decoded by then |
    | `opened` | `Frame.image` was there, once it was used |

    Attributes:
        ms: Milliseconds since the capture, by stage, in the order of the way; they never decrease. Empty
            until the clocks on the way have been compared, and for frames of the past.
        error_ms: The most by which times after `sent` are wrong, because another clock measured them; those
            before are by the camera's own. `None` where `ms` is empty.
    """

    ms: Mapping[str, float]
    error_ms: float | None

    def steps(self) -> list[tuple[str, float]]:
        """Return, for each stage, the milliseconds since the one before; the first since the capture.

        Together they are the frame's age at the last stage.
        """
        times = [0.0, *self.ms.values()]
        return [(stage, now - before) for stage, before, now in zip(self.ms, times, times[1:], strict=False)]

    def __str__(self) -> str:
        """`published 0.1, sent 0.6, …, taken 4.2 ms`."""
        return ", ".join(f"{stage} {ms:.1f}" for stage, ms in self.ms.items()) + (" ms" if self.ms else "")
