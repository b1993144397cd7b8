"""Writes the scenarios whose links are emulated: those that are shipped, or made of steps."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mez_bench.run import ROOT

SHIPPED: Final = ROOT / "crates" / "testbed" / "scenarios"

Rates = Sequence[tuple[float, float]]
"""Rates of a link: pairs of a start time in seconds and a rate in Mbit/s. The first starts at 0."""


def shipped(name: str, folder: Path, seconds_max: float | None = None) -> Path:
    """Return a shipped scenario, or its first seconds.

    Args:
        name: Name of the scenario.
        folder: Where a shortened scenario is written.
        seconds_max: How long it may last.
    """
    path = SHIPPED / f"{name}.toml"
    whole = tomllib.loads(path.read_text())
    if seconds_max is None or whole["seconds"] <= seconds_max:
        return path
    changes = [change for change in whole.get("change", ()) if change["at_s"] < seconds_max]
    # The file's expectations are about the whole scenario.
    rest = {key: value for key, value in whole.items() if key not in ("expect", "change")}
    return written(folder / f"{name}.toml", {**rest, "seconds": seconds_max, "change": changes})


def made(
    name: str,
    folder: Path,
    rates: Rates,
    *,
    seconds: float,
    fps: float,
    cameras: int = 1,
    queue_kilobytes: float = 48.0,
) -> Path:
    """Write a scenario whose links carry these rates. Several cameras share one queue.

    Args:
        name: Name of the scenario.
        folder: Where it is written.
        rates: The rates of each link.
        seconds: How long it lasts.
        fps: Frames per second of each camera.
        cameras: Number of cameras.
        queue_kilobytes: Limit of the network's queue.
    """
    link: dict[str, Any] = {
        "megabits_per_second": rates[0][1],
        "one_way_delay_ms": 5,
        "queue_kilobytes": queue_kilobytes,
    }
    if cameras > 1:
        link["shared"] = "queue"
    return written(
        folder / f"{name}.toml",
        {
            "name": name,
            "seconds": seconds,
            "link": link,
            "camera": [{"name": f"bench/cam{number}", "frames_per_second": fps} for number in range(cameras)],
            "subscription": [{"name": "people", "cameras": "bench/*"}],
            "change": [
                {"at_s": at_s, "camera": "bench/*", "megabits_per_second": megabits}
                for at_s, megabits in rates[1:]
                if at_s < seconds
            ],
        },
    )


def square_wave(high: float, low: float, half_period_s: float, seconds: float) -> Rates:
    """Return rates that alternate between `high` and `low`."""
    turns = int(seconds / half_period_s) + 1
    return [(turn * half_period_s, low if turn % 2 else high) for turn in range(turns)]


def ramp(begin: float, end: float, seconds: float, step_s: float = 0.5) -> Rates:
    """Return rates that change by the same factor in every step."""
    steps = int(seconds / step_s)
    return [(step * step_s, begin * (end / begin) ** (step / steps)) for step in range(steps)]


def written(path: Path, document: Mapping[str, Any]) -> Path:
    """Write a scenario.

    Args:
        path: Its file.
        document: What the file says (docs/scenarios.md).
    """
    plain = [f"{key} = {_value(value)}" for key, value in document.items() if not _is_table(value)]
    tables: list[str] = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            tables += ["", f"[{key}]", *_lines(value)]
        elif _is_table(value):
            for entry in value:
                tables += ["", f"[[{key}]]", *_lines(entry)]
    path.write_text("\n".join([*plain, *tables, ""]))
    return path


def _is_table(value: Any) -> bool:  # noqa: ANN401, of a file
    return isinstance(value, Mapping) or (
        isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value)
    )


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _value(value: Any) -> str:  # noqa: ANN401, of a file
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return f"{{ {', '.join(_lines(value))} }}"
        case _:
            return f"{value}"
