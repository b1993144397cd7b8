"""Measures where the processor time of a 1 MB frame goes, in each process, over QUIC and over TCP."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.table import Table

from mez_bench import flame
from mez_bench.bursts import Driver
from mez_bench.children import BINARY_VARIABLE
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Experiment, Outcome
from mez_bench.payload import write_jpeg
from mez_bench.peers import PeerError, mez_with_frame_pointers
from mez_bench.run import ROOT, Run
from mez_bench.systems import mez

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAME_BYTES: Final = 1_000_000
FPS: Final = 15
FIRST_FRAMES: Final = 5

PARTS: Final = (
    ("page faults", ("page_fault", "do_anonymous_page")),
    ("Unix socket", ("unix_stream",)),
    ("UDP", ("udp", "inet6_sendmsg", "sys_sendmsg", "sys_recvmmsg")),
    ("TCP", ("tcp_",)),
    ("ciphers", ("aes", "ghash", "gcm", "ring::", "ring_core")),
    ("waking and waiting", ("epoll", "futex", "__schedule", "schedule_hrtimeout", "eventfd")),
    ("QUIC", ("quinn",)),
    ("TLS", ("rustls",)),
    ("copying", ("memmove", "memcpy")),
)
"""Parts of a frame's cost, by words in names of functions. The innermost function with a match counts."""


def _run(run: Run) -> Outcome:
    outcome = Outcome()
    seconds = 6 if run.quick else 20
    outcome.parameters |= {"frame_bytes": FRAME_BYTES, "fps": FPS, "seconds": seconds}
    if BINARY_VARIABLE not in os.environ:
        try:
            os.environ[BINARY_VARIABLE] = str(mez_with_frame_pointers(run))
        except PeerError as error:
            raise ExperimentError(str(error)) from error
    payload = write_jpeg(run.folder, FRAME_BYTES)
    driver = Driver()
    shares: dict[str, dict[str, float]] = {}
    for start in (mez.start, mez.start_tcp):
        run.step("starting", done=0)
        system = start(run)
        driver.subscriptions(system, 1)
        driver.warm(system, payload)
        driver.burst(system, payload, 0.02, mez.LOG_BYTES // FRAME_BYTES + 8, 0)
        data = run.folder / f"{system.name}.perf"
        try:
            sampling = flame.record(data, seconds)
        except FileNotFoundError as error:
            raise ExperimentError(str(error)) from error
        run.step(f"sampling {system.name}", done=0)
        burst = driver.burst(system, payload, 1 / FPS, seconds * FPS, FIRST_FRAMES)
        if sampling.wait() != 0:
            raise ExperimentError("perf could not sample; run as root, or set kernel.perf_event_paranoid=-1")
        roots = {child.pid: name for name, child in system.processes.items()}
        counted = flame.stacks(data, roots)
        if not counted:
            raise ExperimentError("perf has no samples of the processes")
        cpu_ms = sum(burst.cpu_ms_per_frame.values())
        file = ROOT / "bench" / "results" / f"flame-{system.name}.svg"
        file.parent.mkdir(exist_ok=True)
        flame.draw(counted, f"{system.name}: {cpu_ms:.1f} ms of processor time for a frame of 1 MB", file)
        flame.fold(counted, file.with_suffix(".folded"))
        outcome.notes.append(f"flame graph: {file.relative_to(ROOT)}, and its stacks beside it as .folded")
        parts = _parts(counted)
        whole = sum(parts.values())
        shares[system.name] = {part: samples / whole * cpu_ms for part, samples in parts.items()}
        outcome.rows += [
            {"system": system.name, "part": part, "cpu_ms_per_frame": ms}
            for part, ms in shares[system.name].items()
        ]
    outcome.tables = [_table(shares)]
    outcome.plot = lambda drawing: _plot(drawing, shares)
    return outcome


def _parts(counted: Counter[flame.Stack]) -> Counter[str]:
    parts: Counter[str] = Counter()
    for stack, samples in counted.items():
        # From the innermost function outwards: what the processor did, rather than who called it.
        found = next(
            (
                part
                for function in reversed(stack[1:])
                for part, words in PARTS
                if any(word in function for word in words)
            ),
            "other",
        )
        parts[found] += samples
    return parts


def _names(shares: dict[str, dict[str, float]]) -> list[str]:
    return [part for part, _ in PARTS] + ["other"] if shares else []


def _table(shares: dict[str, dict[str, float]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("CPU ms per frame, all four processes")
    for system in shares:
        table.add_column(system, justify="right")
    for part in _names(shares):
        table.add_row(part, *(f"{of_system.get(part, 0.0):.2f}" for of_system in shares.values()))
    table.add_row("sum", *(f"{sum(of_system.values()):.2f}" for of_system in shares.values()))
    return table


def _plot(drawing: Figure, shares: dict[str, dict[str, float]]) -> None:
    axes = drawing.subplots()
    left = dict.fromkeys(shares, 0.0)
    for part in _names(shares):
        widths = [of_system.get(part, 0.0) for of_system in shares.values()]
        axes.barh(list(shares), widths, left=list(left.values()), label=part)
        left = {name: left[name] + width for name, width in zip(shares, widths, strict=True)}
    axes.set_xlabel("processor time for a frame of 1 MB, ms, all four processes")
    axes.legend(frameon=False, fontsize="small", ncols=2)


FLAME: Final = Experiment(
    name="flame",
    summary="where the processor time of a 1 MB frame goes, with a flame graph, over QUIC and over TCP",
    needs="perf (Debian: linux-perf) and the right to sample (root); cargo, once",
    seconds_quick=30,
    seconds_full=60,
    run=_run,
)
