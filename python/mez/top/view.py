"""Converts an edge's answers to lines of text. It uses neither a terminal nor a clock."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mez._contract_states import NOT_KEPT, WORST_FIRST

Json = Mapping[str, Any]
GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answers of an edge.

    Attributes:
        site: The answer to `/api/v1/site`.
        cameras: The cameras in the answer to `/api/v1/cameras`.
        applications: The answer to `/api/v1/applications`.
    """

    site: Json
    cameras: Sequence[Json]
    applications: Json


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its title.
        rank: In narrow terminals, columns with the highest rank are left out first. Rank 0 always stays.
        text: Returns the text for a row.
        is_number: Whether it is aligned to the right.
    """

    name: str
    rank: int
    text: Callable[[Json], str]
    is_number: bool = False


def worst(camera: Json) -> Json | None:
    """The contract of a camera with the worst state. `None`: no contract was judged."""
    judged = [of for of in camera["contracts"] if of["state"] is not None]
    return min(judged, key=lambda of: _rank(of["state"]), default=None)


def _rank(state: str) -> int:
    return WORST_FIRST.index(state) if state in WORST_FIRST else len(WORST_FIRST)


SORTS: Final[dict[str, Callable[[Json], Any]]] = {
    "name": lambda camera: camera["name"],
    "age": lambda camera: -_age(camera),
    "fps": lambda camera: -camera["received_frames_per_second"],
    "contract": lambda camera: _rank((worst(camera) or {"state": "ok"})["state"]),
    "link": lambda camera: -(camera["crossed_bits_per_second"] or 0),
}
"""The sort keys of cameras: by name, or the oldest, fastest, worst or busiest first."""


def lines(now: Snapshot, sort: str, width: int | None) -> list[str]:
    """All lines.

    Args:
        now: The answers of the edge.
        sort: A key of `SORTS`.
        width: Columns of the terminal; `None`: any number.
    """
    cameras = sorted(now.cameras, key=lambda camera: (SORTS[sort](camera), camera["name"]))
    told = [_headline(now), "", *table(_CAMERAS, cameras, width)]
    if not cameras:
        told.append("no cameras that this identity may observe")
    applications, groups = now.applications["applications"], now.applications["groups"]
    if applications:
        told += ["", *table(_APPLICATIONS, applications, width)]
    if groups:
        told += ["", *table(_GROUPS, groups, width)]
    return [cut(line, width) for line in told]


def table(columns: Sequence[Column], rows: Sequence[Json], width: int | None) -> list[str]:
    """A title line, and a line for each row.

    Args:
        columns: The columns, from left to right.
        rows: The rows.
        width: Columns of the terminal. If it is narrow, the least important columns are left out.
    """
    cells = [[column.text(row) for column in columns] for row in rows]
    titles = [column.name for column in columns]
    widths = [max(cells_wide(line[at]) for line in [titles, *cells]) for at in range(len(columns))]
    kept = list(range(len(columns)))
    if width is not None:
        room = width + GAP
        kept = []
        for at in sorted(range(len(columns)), key=lambda at: columns[at].rank):
            # The last column may be cut off.
            takes = (min(widths[at], 12) if at == len(columns) - 1 else widths[at]) + GAP
            if takes <= room or columns[at].rank == 0:
                kept.append(at)
                room -= takes
        kept.sort()
    return [
        (" " * GAP).join(_padded(line[at], widths[at], columns[at].is_number) for at in kept).rstrip()
        for line in [titles, *cells]
    ]


def plain(text: str) -> str:
    """A foreign text on one line, without control characters."""
    return "".join(sign if unicodedata.category(sign)[0] not in "CZ" or sign == " " else "?" for sign in text)


def cut(text: str, width: int | None) -> str:
    """A line, cut to the width."""
    if width is None or cells_wide(text) <= width:
        return text
    told, room = [], width - 1
    for sign in text:
        room -= cells_wide(sign)
        if room < 0:
            break
        told.append(sign)
    return "".join(told) + "…"


def cells_wide(text: str) -> int:
    """How many columns a text takes."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def _padded(text: str, wide: int, is_number: bool) -> str:
    space = " " * (wide - cells_wide(text))
    return space + text if is_number else text + space


def _headline(now: Snapshot) -> str:
    site = now.site
    state = "ready" if site["ready"]["ok"] else f"NOT READY: {', '.join(site['ready']['failing'])}"
    up_s = site["uptime_ms"] // 1000
    ends = min((of["ends_utc_ms"] for of in site["certificates"]), default=None)
    parts = [
        f"edge {plain(site['edge'])} of {plain(site['site'])}: {state}",
        f"up {up_s // 86400}d {up_s // 3600 % 24:02}:{up_s // 60 % 60:02}",
        f"cameras {site['cameras_connected']}/{site['cameras']}",
        f"applications {site['applications']}",
        f"memory {site['log_bytes'] / 2**20:.0f} MiB",
    ]
    if site["store_bytes"] is not None:
        parts.append(f"disk {site['store_bytes'] / 2**30:.1f} GiB")
    if ends is not None:
        parts.append(f"certificate {(ends - site['now_utc_ms']) / 86_400_000:.0f} d")
    return ", ".join(parts)


def _age(camera: Json) -> float:
    newest = camera["newest"]
    return float(newest["age_ms"]) if newest and newest["age_ms"] is not None else -1.0


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _mbit(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:.2f}"


def _state(camera: Json) -> str:
    if not camera["connected"]:
        return "absent"
    source = camera["source"]
    return str(source["state"]) if source else "connected"


def _latency(camera: Json) -> str:
    of = worst(camera)
    return "-" if of is None else f"{_ms(of['latency_p95_ms'])}/{_ms(of['latency_bound_ms'])}"


def _lag(group: Json) -> str:
    lags = [lane["lag"] for lane in group["lanes"] if lane["lag"] is not None]
    return str(max(lags)) if lags else "-"


_CAMERAS: Final = (
    Column("CAMERA", 0, lambda camera: plain(camera["name"])),
    Column("STATE", 1, _state),
    Column("FPS", 4, lambda camera: f"{camera['received_frames_per_second']:.1f}", True),
    Column("AGE ms", 3, lambda camera: _ms(camera["newest"] and camera["newest"]["age_ms"]), True),
    Column("RUNG", 8, lambda camera: plain(camera["newest"]["rung"]) if camera["newest"] else "-"),
    Column("CONTRACT", 2, lambda camera: (worst(camera) or {"state": "-"})["state"]),
    Column("P95/BOUND ms", 5, _latency, True),
    Column("Mbit/s", 6, lambda camera: _mbit(camera["crossed_bits_per_second"]), True),
    Column("LINK Mbit/s", 9, lambda camera: _mbit(camera["link_bits_per_second"]), True),
    Column("REASON", 7, lambda camera: plain((worst(camera) or {"reason": ""})["reason"])),
)
_APPLICATIONS: Final = (
    Column("APPLICATION", 0, lambda of: plain(of["application"])),
    Column("READS", 1, lambda of: plain(of["pattern"])),
    Column("FPS", 2, lambda of: f"{of['frames_per_second']:.1f}", True),
    Column("DELIVER", 5, lambda of: of["deliver"]),
    Column("NOT KEPT", 3, lambda of: str(_not_kept(of)), True),
    Column("GROUP", 4, lambda of: plain(of["group"] or "-")),
)
_GROUPS: Final = (
    Column("GROUP", 0, lambda of: plain(of["name"])),
    Column("OWNER", 2, lambda of: plain(of["owner"])),
    Column("LAG", 1, _lag, True),
    Column("MEMBERS", 3, lambda of: str(len(of["members"])), True),
    Column("OPEN", 4, lambda of: str(of["open"]), True),
    Column("DEAD", 5, lambda of: str(of["dead"]), True),
    Column("LOST", 6, lambda of: str(of["lost"]), True),
)


def _not_kept(application: Json) -> int:
    states = [of["contract"]["state"] for of in application["cameras"]]
    return sum(state in NOT_KEPT for state in states)
