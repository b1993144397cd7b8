"""The links between devices and the edge: networks, and channels that change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mez_bench.contracts.links import square_wave, written

QUEUE_KILOBYTES: Final = 256.0
"""Limit of the network's queue in each direction: three responses of 720p."""

LEAD_S: Final = 10.0
"""By how much a link lasts longer than the play on it."""

LOOPBACK: Final = "loopback"


@dataclass(frozen=True, slots=True)
class Network:
    """A link.

    Attributes:
        name: Name of the network.
        about: Its properties and where they come from.
        link: As in a scenario file; `None`: the loopback interface, with no link emulated on it.
        wave: For a link that alternates between two rates: both in Mbit/s, and the seconds of each.
    """

    name: str
    about: str
    link: Mapping[str, Any] | None = None
    wave: tuple[float, float, float] | None = None

    def scenario(self, folder: Path, seconds: float, fps: float, seed: int) -> Path:
        """Write the network as a scenario with one camera. The seed is that of random links."""
        assert self.link is not None, "asked for only where a link is emulated"
        seconds += LEAD_S
        changes = []
        if self.wave is not None:
            high, low, half_period_s = self.wave
            changes = [
                {"at_s": at_s, "camera": "bench/*", "megabits_per_second": megabits}
                for at_s, megabits in square_wave(high, low, half_period_s, seconds)[1:]
                if at_s < seconds
            ]
        return written(
            folder / f"{self.name}.toml",
            {
                "name": self.name,
                "seed": seed,
                "seconds": seconds,
                "link": {"queue_kilobytes": QUEUE_KILOBYTES, **self.link},
                "camera": [{"name": "bench/cam0", "frames_per_second": fps}],
                "change": changes,
            },
        )


def _wan(name: str, round_trip_ms: float, cloud: str) -> Network:
    return Network(
        name,
        f"100 Mbit/s and a round trip of {round_trip_ms:g} ms: the paper's end-to-end median to Azure "
        f"{cloud} over Wi-Fi, less its 13 ms of compute",
        {"megabits_per_second": 100, "one_way_delay_ms": round_trip_ms / 2},
    )


NETWORKS: Final[Mapping[str, Network]] = {
    network.name: network
    for network in (
        Network(LOOPBACK, "no link is emulated"),
        Network(
            "wifi",
            "the packet opportunities of a station beside four busy cameras on a Wi-Fi medium (wifi_cameras)",
            {"channel": "wifi_cameras", "one_way_delay_ms": 1},
        ),
        Network(
            "lte",
            "a cellular link of 20 Mbit/s in the median, with grants and handovers (cellular), and a round "
            "trip of 40 ms",
            {"channel": "cellular", "one_way_delay_ms": 20},
        ),
        _wan("wan_east", 46, "East US"),
        _wan("wan_west", 88, "West US"),
    )
}
"""Networks with a row of their own in the results."""

CHANGING: Final[Mapping[str, Network]] = {
    network.name: network
    for network in (
        Network(
            "square_wave",
            "10 and 2 Mbit/s in turn, 2 s each",
            {"megabits_per_second": 10, "one_way_delay_ms": 3},
            wave=(10.0, 2.0, 2.0),
        ),
        Network(
            "cellular",
            "log-normal around 20 Mbit/s within seconds, handovers",
            {"channel": "cellular", "one_way_delay_ms": 10},
        ),
        Network(
            "shared_wifi",
            "90 Mbit/s shared with 0 to 6 stations, fading, bursts, outages (mixed)",
            {"channel": "mixed", "one_way_delay_ms": 3},
        ),
    )
}
"""Channels on which the share of answers on time is measured."""
