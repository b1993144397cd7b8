"""Times at which a frame passed the stages from the camera to the application."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trace:
    """When a frame passed each stage, from the camera to your program.

    Not every frame passes every stage.

    | stage | at the camera |
    | --- | --- |
    | `published` | the broker found the frame in its log |
    | `considered`, `chosen` | the controller began to choose a rung, and had chosen it |
    | `encoding`, `encoded` | a codec began to encode the frame, and had finished |
    | `queued` | the broker gave it to the link |
    | `sent` | the first byte was given to the transport |
    | **stage** | **at the edge** |
    | `arriving`, `arrived` | the header had arrived, and the last byte |
    | `decoded` | a still image had been made of it, if it is video and the application takes still images |
    | `logged` | it was in the replica log |
    | `handed` | the edge took it from the log for this subscription, and began to send it |
    | **stage** | **in this program** |
    | `received` | the client library had received all of it |
    | `taken` | your program got it; video is decoded by then |
    | `opened` | `Frame.image` was decoded; missing until you use it |

    Attributes:
        ms: Milliseconds since the capture, by stage, in order. They never decrease. Empty until the clocks on
            the way have been compared, and for frames of the past.
        error_ms: The largest possible error of the times after `sent`, which other clocks measured, in
            milliseconds. The times up to `sent` are by the camera's own clock. `None` if `ms` is empty.
    """

    ms: Mapping[str, float]
    error_ms: float | None

    def steps(self) -> list[tuple[str, float]]:
        """List pairs: a stage, and the milliseconds since the previous stage.

        For the first stage, these are the milliseconds since the capture. The sum of all steps is the frame's
        age at the last stage.
        """
        times = [0.0, *self.ms.values()]
        return [(stage, now - before) for stage, before, now in zip(self.ms, times, times[1:], strict=False)]

    def __str__(self) -> str:
        """`published 0.1, sent 0.6, …, taken 4.2 ms`."""
        return ", ".join(f"{stage} {ms:.1f}" for stage, ms in self.ms.items()) + (" ms" if self.ms else "")
