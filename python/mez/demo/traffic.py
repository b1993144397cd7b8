"""Adds up the bytes that the demo's cameras published, and those that crossed their links."""

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
        """Describe it for people; empty if nothing was published."""
        if self.published_bytes == 0:
            return ""
        share = 100 * self.link_bytes / self.published_bytes
        return (
            f"The cameras published {_megabytes(self.published_bytes)}; "
            f"{_megabytes(self.link_bytes)} crossed the links ({share:.1f} %)."
        )


class _Count:
    """The sum of a broker's count, which begins at 0 at each start of the broker."""

    def __init__(self) -> None:
        self._seen = 0
        self.sum = 0

    def take(self, count: int) -> bool:
        """Take the current count, and return whether it changed."""
        changed = count != self._seen
        self.sum += count - self._seen if count >= self._seen else count
        self._seen = count
        return changed


class _Camera:
    def __init__(self) -> None:
        self.published, self.link = _Count(), _Count()
        self.first: Traffic | None = None
        self.last: Traffic | None = None


class TrafficBook:
    """Counts from the edge's lists of cameras.

    A camera reports its published bytes once a second. The edge itself counts the bytes that cross the link,
    and that count is always current. So the two counts fit together only when a report comes. They are
    counted from the first report until the last: for the link, from its count just after the first until its
    count just before the last.
    """

    def __init__(self) -> None:
        self._cameras: dict[str, _Camera] = {}

    def take(self, cameras: Iterable[mez.CameraInfo]) -> None:
        """Take the current list; call it several times a second."""
        for told in cameras:
            camera = self._cameras.setdefault(told.camera, _Camera())
            crossed_before = camera.link.sum
            reported = camera.published.take(told.published_bytes)
            camera.link.take(told.link_bytes)
            if not reported:
                continue
            if camera.first is None:
                camera.first = Traffic(camera.published.sum, camera.link.sum)
            else:
                camera.last = Traffic(camera.published.sum, crossed_before)

    def begin(self) -> None:
        """Count from the next report of each camera."""
        for camera in self._cameras.values():
            camera.first = camera.last = None

    def traffic(self) -> Traffic:
        """Return the sums until the last report of each camera."""
        spans = [
            (camera.first, camera.last)
            for camera in self._cameras.values()
            if camera.first is not None and camera.last is not None
        ]
        return Traffic(
            sum(last.published_bytes - first.published_bytes for first, last in spans),
            sum(last.link_bytes - first.link_bytes for first, last in spans),
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
