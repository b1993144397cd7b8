"""Adds up what the demo's cameras published, and what of that crossed their links."""

from collections.abc import Iterable
from dataclasses import dataclass

import mez


@dataclass(frozen=True, slots=True)
class Traffic:
    """Payload bytes of all cameras together.

    Attributes:
        published_bytes: Of the frames published.
        link_bytes: Of what crossed the links.
    """

    published_bytes: int
    link_bytes: int

    def __str__(self) -> str:
        """Say it to a person; empty if nothing was published."""
        if self.published_bytes == 0:
            return ""
        share = 100 * self.link_bytes / self.published_bytes
        return (
            f"The cameras published {_megabytes(self.published_bytes)}; "
            f"{_megabytes(self.link_bytes)} crossed the links ({share:.1f} %)."
        )


class TrafficBook:
    """Takes what the edge says of its cameras. Brokers count from 0 at each start; the book goes on."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], int] = {}
        self._sums = {"published": 0, "link": 0}
        self._at_begin = (0, 0)

    def take(self, cameras: Iterable[mez.CameraInfo]) -> None:
        """Enter what the edge says now."""
        for camera in cameras:
            self._add("published", camera.camera, camera.published_bytes)
            self._add("link", camera.camera, camera.link_bytes)

    def begin(self) -> None:
        """Count from now on."""
        self._at_begin = (self._sums["published"], self._sums["link"])

    def traffic(self) -> Traffic:
        """Return the sums since the beginning."""
        published, link = self._at_begin
        return Traffic(self._sums["published"] - published, self._sums["link"] - link)

    def _add(self, what: str, camera: str, count: int) -> None:
        before = self._seen.get((what, camera), 0)
        # A count that fell began anew.
        self._sums[what] += count - before if count >= before else count
        self._seen[what, camera] = count


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
