"""Shows a running demo: a table on a terminal, lines elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mez.demo.account import CameraTotals, Now, Totals
from mez.demo.detector import DetectorTotals
from mez.demo.supervise import Incident
from mez.demo.usage import Usage

INCIDENTS_SHOWN: Final = 4
BAR_COLUMNS: Final = 12

CAMERA_PROCESSES_SHOWN: Final = 6
"""The most camera brokers with a row of their own. Others share one, except those that do not serve."""

WIDE_COLUMNS: Final = 100
"""Width of a terminal from which the tables have all columns."""

SILENT_AFTER_S: Final = 1.0
"""The time without frames after which a camera is shown as silent, unless its frame rate explains it."""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process at one moment.

    Attributes:
        name: `edge`, a camera's name, or `this application`.
        pid: Its number; `None` while it is down.
        usage: What it uses; `None` while it is down.
        state: In a word or two.
    """

    name: str
    pid: int | None
    usage: Usage | None
    state: str


@dataclass(frozen=True, slots=True)
class ContractRow:
    """A camera's link and contract at one moment.

    Attributes:
        megabits: The rate of the link, in Mbit/s.
        shared: Whether several cameras share this rate.
        share_bytes: The camera's share of a declared channel, in bytes per frame; `None`: not limited.
        rung: The rung of the newest frame.
        state: The contract's state.
        reason: The reason for the state.
    """

    megabits: float
    shared: bool
    share_bytes: int | None
    rung: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the table shows, at one moment.

    Attributes:
        elapsed_s: Seconds since frames of all cameras began to flow.
        seconds: How long the demo lasts.
        fps: Frames per second asked of each camera.
        totals: The frame counts.
        now: Per camera, the last seconds.
        detector: Counts of the detector.
        processes: Brokers, then this application.
        incidents: Deaths of brokers so far.
        contracts: In a scenario, per camera its link and its contract.
        bound_ms: In a scenario, the latency bound.
    """

    elapsed_s: float
    seconds: float
    fps: float
    totals: Totals
    now: Mapping[str, Now]
    detector: DetectorTotals
    processes: Sequence[ProcessRow]
    incidents: Sequence[Incident]
    contracts: Mapping[str, ContractRow] = field(default_factory=dict)
    bound_ms: float | None = None


def render(snapshot: Snapshot, columns: int = WIDE_COLUMNS) -> RenderableType:
    """Draw the table for a terminal of that width. A narrow one shows only the more important columns."""
    wide = columns >= WIDE_COLUMNS
    parts: list[RenderableType] = [_heading(snapshot), _cameras(snapshot, wide=wide)]
    parts += _contracts(snapshot, wide=wide) if snapshot.contracts else [_detector(snapshot)]
    parts.append(_processes(snapshot))
    parts += [
        Text(f" {incident}", style="green" if incident.resumed_at_s else "bold yellow")
        for incident in snapshot.incidents[-INCIDENTS_SHOWN:]
    ]
    edge = next((row.pid for row in snapshot.processes if row.name == "edge" and row.pid), None)
    if edge is not None and not snapshot.incidents and snapshot.seconds - snapshot.elapsed_s > 5:
        parts.append(
            Text(f" Try it in another terminal: kill -9 {edge}. Frames will come again.", style="dim")
        )
    return Group(*parts)


def line(snapshot: Snapshot) -> str:
    """Return the same as one line, for logs."""
    totals = snapshot.totals
    age = totals.age_ms(95)
    parts = [
        f"{snapshot.elapsed_s:5.1f} s",
        f"{sum(now.frames_per_second for now in snapshot.now.values()):.1f} frames/s",
        f"delivered {totals.delivered} of {totals.published}",
        f"skipped {reasons(totals.skipped) or 'none'}",
        "age p95 unknown" if age is None else f"age p95 {age:.1f} ms",
    ]
    if snapshot.contracts:
        mean = sum(row.megabits for row in snapshot.contracts.values()) / len(snapshot.contracts)
        shared = all(row.shared for row in snapshot.contracts.values())
        parts.append(f"link {mean:.1f} Mbit/s{' for all' * shared}")
        parts += sorted({row.rung for row in snapshot.contracts.values() if row.rung})
        parts += sorted({row.state for row in snapshot.contracts.values() if row.state})
    else:
        parts.append(
            f"searched {sum(snapshot.detector.frames.values())}, "
            f"found {sum(snapshot.detector.detections.values())}"
        )
    down = [row.name for row in snapshot.processes if row.pid is None]
    if down:
        parts.append(f"DOWN: {', '.join(down)}")
    return "  ".join(parts)


def reasons(skipped: Mapping[str, int]) -> str:
    """Say how many frames were skipped and why, the most frequent reason first; empty if none was."""
    ordered = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in ordered if count)


def _heading(snapshot: Snapshot) -> Text:
    elapsed = min(max(snapshot.elapsed_s, 0.0), snapshot.seconds)
    filled = round(elapsed / snapshot.seconds * BAR_COLUMNS)
    text = Text()
    text.append(" Mez demo ", style="bold reverse")
    cameras = len(snapshot.totals.cameras)
    text.append(f"  {cameras} camera{'s' * (cameras > 1)} at {snapshot.fps:g} frames/s, over mutual TLS  ")
    text.append("━" * filled, style="green")
    text.append("━" * (BAR_COLUMNS - filled), style="dim")
    text.append(f"  {elapsed:.0f} of {snapshot.seconds:.0f} s")
    return text


def _cameras(snapshot: Snapshot, *, wide: bool) -> Table:
    table = _table()
    table.add_column("camera", min_width=11)
    for name in ("rate /s", "age ms", "p95 ms", *(["kB"] if wide else []), "delivered"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("skipped, and why")
    table.add_column("found", justify="right")
    silent_after_s = max(SILENT_AFTER_S, 3 / snapshot.fps)
    for camera in snapshot.totals.cameras.values():
        now = snapshot.now[camera.camera]
        silent = now.silent_s is None or now.silent_s > silent_after_s
        table.add_row(
            camera.camera,
            Text("no frames", style="bold red") if silent else f"{now.frames_per_second:.1f}",
            _figure(now.age_ms_p50, 1),
            _figure(now.age_ms_p95, 1),
            *([_figure(None if now.size_bytes is None else now.size_bytes / 1000, 0)] if wide else []),
            f"{camera.delivered}",
            _skipped(camera),
            f"{snapshot.detector.latest.get(camera.camera, 0)}",
        )
    return table


_STATES: Final = {
    "ok": "green",
    "unverified": "",
    "infeasible": "bold yellow",
    "application_late": "bold yellow",
    "drifted": "bold yellow",
}


def _contracts(snapshot: Snapshot, *, wide: bool) -> list[RenderableType]:
    """The rate of each link, the rung of its frames, and the state of the contract with its reason.

    On a narrow terminal, reasons stand below the table, and only where the contract is not kept.
    """
    below: list[RenderableType] = []
    table = _table()
    table.add_column("camera", min_width=11)
    table.add_column("link Mbit/s", justify="right", no_wrap=True)
    bound = "" if snapshot.bound_ms is None else f" of {snapshot.bound_ms:g}"
    table.add_column(f"p95 ms{bound}", justify="right", no_wrap=True)
    divided = any(row.share_bytes is not None for row in snapshot.contracts.values())
    if divided:
        table.add_column("share kB", justify="right", no_wrap=True)
    table.add_column("rung", no_wrap=True)
    table.add_column("contract, and why" if wide else "contract")
    for camera, row in snapshot.contracts.items():
        p95 = snapshot.now[camera].age_ms_p95
        late = p95 is not None and snapshot.bound_ms is not None and p95 > snapshot.bound_ms
        why = Text(row.state, style=_STATES.get(row.state, "bold red"))
        if row.reason and wide:
            why.append(f": {row.reason}", style="dim")
        elif row.reason and row.state != "ok":
            below.append(Text(f" {camera}: {row.reason}", style="dim"))
        table.add_row(
            camera,
            f"{row.megabits:.1f}{' shared' * row.shared}",
            Text(_figure(p95, 0), style="bold red" if late else ""),
            *([_figure(None if row.share_bytes is None else row.share_bytes / 1000, 1)] if divided else []),
            row.rung,
            why,
        )
    return [table, *below]


def _skipped(camera: CameraTotals) -> Text:
    text = Text(reasons(camera.skipped) or "none", style="" if camera.skipped.total() else "dim")
    if camera.corrupt:
        text.append(f"  {camera.corrupt} CORRUPT", style="bold red")
    if camera.unexplained:
        text.append(f"  {camera.unexplained} UNEXPLAINED", style="bold red")
    return text


def _detector(snapshot: Snapshot) -> Text:
    detector = snapshot.detector
    frames = sum(detector.frames.values())
    per_second = frames / snapshot.elapsed_s if snapshot.elapsed_s > 0.5 else 0.0
    each = "" if detector.detector_ms_p50 is None else f", {detector.detector_ms_p50:.0f} ms each"
    return Text(
        f" detector: {frames} of {snapshot.totals.delivered} frames searched "
        f"({per_second:.1f}/s{each}), {sum(detector.detections.values())} boxes found\n"
    )


def _processes(snapshot: Snapshot) -> Table:
    table = _table()
    table.add_column("process", min_width=16)
    for name in ("pid", "CPU %", "memory MB"):
        table.add_column(name, justify="right")
    table.add_column("state", no_wrap=True)
    for row in _shown(snapshot.processes):
        usage = row.usage
        table.add_row(
            row.name,
            "-" if row.pid is None else f"{row.pid}",
            _figure(None if usage is None else usage.cpu_percent, 0),
            _figure(None if usage is None else usage.rss_mb, 0),
            Text(row.state, style="bold red") if row.state.startswith("down") else row.state,
        )
    return table


def _shown(processes: Sequence[ProcessRow]) -> Sequence[ProcessRow]:
    """Return the rows, with those of many serving cameras combined into one."""
    serving = [row for row in processes[1:-1] if row.state == "serving" and row.usage is not None]
    if len(processes) - 2 <= CAMERA_PROCESSES_SHOWN or not serving:
        return processes
    usages = [row.usage for row in serving if row.usage is not None]
    together = ProcessRow(
        f"{len(serving)} cameras",
        None,
        Usage(sum(usage.cpu_percent or 0.0 for usage in usages), sum(usage.rss_mb for usage in usages)),
        "serving",
    )
    return [processes[0], together, *(row for row in processes[1:-1] if row not in serving), processes[-1]]


def _table() -> Table:
    return Table(box=None, pad_edge=True, header_style="dim", padding=(0, 1))


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
