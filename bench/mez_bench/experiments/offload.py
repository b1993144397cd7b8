"""Measures offload: a frame goes up, a picture comes back, over real and emulated links."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez._processes import ProcessError
from mez_bench.arms import in_turn
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.offload import pictures
from mez_bench.offload.bare import Exchange, times_ms
from mez_bench.offload.engine import PIXELS
from mez_bench.offload.networks import CHANGING, LOOPBACK, NETWORKS, Network
from mez_bench.offload.plans import Engine
from mez_bench.offload.shown import (
    DISPLAY_HZ,
    ON_TIME_MS,
    STAGES,
    WARM_UP_S,
    Shown,
    gaps_s,
    motion_to_photon,
    shares,
    shown,
)
from mez_bench.offload.site import FPS, Asked, Site, Told, kill_after
from mez_bench.report import columns, figure
from mez_bench.run import Run
from mez_bench.stats import Values, interval, mean, median, percentile, ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS: Final = ("paths", "paper", "chosen", "flash", "channels", "devices", "kill")


@dataclass(frozen=True, slots=True)
class Size:
    """A size of pictures, with the paper's figures for it (George et al. 2020, tables 1 and 2).

    Attributes:
        name: Its name in the paper.
        pixels: Width and height, 4:3.
        compute_ms: Compute time of a Tesla V100 at 240p; for larger sizes, scaled by the number of pixels.
        request_bytes: Size of a frame.
        response_bytes: Size of the picture that the engine makes of it.
        e2e_ms_p50: Median of RTT plus compute.
        e2e_ms_p90: 90th percentile of RTT plus compute.
    """

    name: str
    pixels: tuple[int, int]
    compute_ms: float
    request_bytes: int
    response_bytes: int
    e2e_ms_p50: float
    e2e_ms_p90: float


SIZES: Final = (
    Size("240p", (320, 240), 10.0, 9_890, 11_560, 23.0, 26.0),
    Size("360p", (480, 360), 22.5, 16_220, 23_020, 44.0, 48.4),
    Size("480p", (640, 480), 40.0, 23_110, 37_870, 65.6, 72.1),
    Size("720p", (960, 720), 90.0, 40_830, 80_110, 165.0, 186.7),
)
BY_NAME: Final = {size.name: size for size in SIZES}

WIFI: Final = "wifi"
OWN: Final = f"{LOOPBACK}, coded"
"""The arm with pictures that were encoded in advance: its time is Mez's own, without encoding."""

COMPUTE_MS: Final = 10.0
"""The paper's compute time at 240p, for all parts with one size."""

UP_MS_MIN: Final = 5.0
"""Smallest latency bound of the way up, even if the compute time leaves less."""

FLOOR: Final = 0.5
"""The accuracy floor (SSIM) on changing channels."""

QUALITIES: Final = (10, 30, 50, 70)
QUALITIES_QUICK: Final = (30,)
"""The fixed JPEG qualities with tokens. On each channel, Mez is compared with the best of them."""

TOKENS: Final = 2
TOKENS_ANSWER_MS: Final = 10_000.0
"""Latency bound of answers with tokens: so long that no answer is given up."""

ADAPTIVE: Final = "Mez"
SEED: Final = 1
"""Seed of links and flashes in the first round; each later round has the next number."""

FLASH_S: Final = 0.25
"""How long the light stays on: longer than an answer takes."""

COUNTS: Final = (1, 2, 4, 8, 16)
COUNTS_QUICK: Final = (16,)
LINK_LATE_MS: Final = 5.0
"""A note reports emulators of links that caused a larger delay than this."""

KILL_DEVICES: Final = 4
KILL_AFTER_S: Final = 2.0
GAP_WITHIN_S: Final = 3.0
ENGINES: Final = "engines"


@dataclass(frozen=True, slots=True)
class Extent:
    """The length of a run."""

    rounds: int
    seconds: float
    channel_s: float
    flash_s: float


FULL: Final = Extent(rounds=3, seconds=15.0, channel_s=30.0, flash_s=30.0)
QUICK: Final = Extent(rounds=1, seconds=3.5, channel_s=9.0, flash_s=7.0)


@dataclass(frozen=True, slots=True)
class Shot:
    """A play, and its figures."""

    asked: Asked
    told: Told
    shown: Shown


class Bench:
    """The parts of the experiment, at one edge."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.extent = QUICK if run.quick else FULL
        self.site = Site(run)
        self.folder = run.folder
        self.outcome = Outcome()

    def cell(self, asked: Asked) -> Shot:
        """Run a play, and compute its figures."""
        told = self.site.play(asked)
        return Shot(asked, told, shown(told.played, told.worked, asked.seconds))

    def time(self, metric: str, cells: Sequence[Shot], percent: float) -> None:
        """Add a percentile of the end-to-end times of an arm.

        Raises:
            ExperimentError: In some round no frame was answered.
        """
        for cell in cells:
            if not len(cell.shown.e2e_ms):
                skipped = cell.told.played.skipped or "none"
                raise ExperimentError(f"{metric}: no frame was answered (skipped answers: {skipped})")
        self.outcome.metrics[metric] = interval([cell.shown.e2e_ms for cell in cells], percentile(percent))

    def asked(self, size: Size, network: Network, compute_ms: float, *, canned: bool = False) -> Asked:
        """Return a play of pixels of a size; if `canned`, of JPEGs of the paper's bytes, made before."""
        film = str(pictures.film(self.folder, size.pixels))
        answer = PIXELS
        if canned:
            film, answer = (
                str(pictures.jpeg(self.folder, size.pixels, size_bytes))
                for size_bytes in (size.request_bytes, size.response_bytes)
            )
        # As `mez engine run` takes frames.
        engine = Engine(pattern="", edge="", compute_ms=compute_ms, answer=answer, group=ENGINES, fresh=True)
        return Asked(network=network, pictures=film, engine=engine, seconds=self.extent.seconds)

    def within(self, asked: Asked) -> Asked:
        """Return a play with answers due within `ON_TIME_MS`, where Mez chooses the bytes both ways.

        The way up may take half of the time that the compute leaves.
        """
        film = Path(asked.pictures)
        engine = replace(
            asked.engine,
            # A group takes a profile by its name at the edge only.
            group=None,
            fresh=False,
            latency_ms=max(UP_MS_MIN, (ON_TIME_MS - asked.engine.compute_ms) / 2),
            accuracy=FLOOR,
            profile=str(pictures.profile(self.folder, film)),
        )
        return replace(asked, engine=engine, answer_ms=ON_TIME_MS)

    def row(self, part: str, size: str, arm: str, cells: Sequence[Shot]) -> None:
        """Add a row."""
        self.outcome.rows.append(_row(part, size, arm, cells))

    def rounds(self, asked: Mapping[str, Asked], what: str) -> dict[str, list[Shot]]:
        """Play arms in turn."""
        cells: dict[str, list[Shot]] = {name: [] for name in asked}
        for number in range(self.extent.rounds):
            for name in in_turn(list(asked), number):
                self.run.step(f"{what}: {name}")
                cells[name].append(self.cell(replace(asked[name], seed=SEED + number)))
        return cells


# ---- the parts -------------------------------------------------------------------------------------------


def _paths(bench: Bench) -> None:
    """An engine that does nothing: all sizes, all networks; and Mez's own time at 720p."""
    quick = (("240p", LOOPBACK), ("720p", LOOPBACK), ("240p", "lte"), ("240p", "wan_east"))
    every = [(size.name, network) for network in NETWORKS for size in SIZES]
    chosen = quick if bench.run.quick else every
    arms = {
        f"{name} {network}": bench.asked(BY_NAME[name], NETWORKS[network], 0.0) for name, network in chosen
    }
    # The same pictures as in the play of pixels, with the same JPEG qualities.
    large = arms[f"720p {LOOPBACK}"]
    film = pictures.film(bench.folder, BY_NAME["720p"].pixels)
    sent, answered = (str(pictures.coded(bench.folder, film, quality)) for quality in (95, 90))
    arms[f"720p {OWN}"] = replace(large, pictures=sent, engine=replace(large.engine, answer=answered))
    for arm, cells in bench.rounds(arms, "no-op engine").items():
        size, _, network = arm.partition(" ")
        bench.row("no-op", size, network, cells)
        if arm == f"240p {LOOPBACK}":
            bench.time("e2e_ms_p50_noop_240p", cells, 50)
            bench.time("e2e_ms_p99_noop_240p", cells, 99)
        if network == OWN:
            bench.time("own_ms_p50_720p", cells, 50)


def _paper(bench: Bench) -> None:
    """The paper's bytes and compute on Wi-Fi."""
    arms = {size.name: bench.asked(size, NETWORKS[WIFI], size.compute_ms, canned=True) for size in SIZES}
    for name, cells in bench.rounds(arms, "the paper's bytes").items():
        bench.row("paper's bytes", name, WIFI, cells)
        for percent in (50, 90):
            bench.time(f"e2e_ms_p{percent}_{name}", cells, percent)
    for size in SIZES:
        exchange = Exchange(size.request_bytes, size.response_bytes, size.compute_ms)
        bare = []
        for number in range(bench.extent.rounds):
            bench.run.step(f"the paper's bytes as bare datagrams: {size.name}")
            extent, seed = bench.extent, SEED + number
            bare.append(
                times_ms(bench.run, NETWORKS[WIFI], exchange, seconds=extent.seconds, fps=FPS, seed=seed)
            )
        for percent in (50, 90):
            bench.outcome.metrics[f"bare_ms_p{percent}_{size.name}"] = interval(bare, percentile(percent))


def _chosen(bench: Bench) -> None:
    """The paper's compute on Wi-Fi, with pixels. Mez chooses the bytes of frames and answers."""
    sizes = SIZES[2:3] if bench.run.quick else SIZES
    arms = {size.name: bench.within(bench.asked(size, NETWORKS[WIFI], size.compute_ms)) for size in sizes}
    for name, cells in bench.rounds(arms, "Mez's own bytes").items():
        bench.row("own bytes", name, WIFI, cells)
        # At 720p the compute alone takes nearly all of the bound: there may be no answer.
        on_time = [np.array([cell.shown.on_time_share]) for cell in cells]
        bench.outcome.metrics[f"chosen_on_time_share_{name}"] = interval(on_time, mean)


def _flash(bench: Bench) -> None:
    """Motion to photon: a light in front of the camera, detected in the pictures that the device shows."""
    size = BY_NAME["240p"]
    asked = bench.asked(size, NETWORKS[WIFI], COMPUTE_MS)
    through, alone, flashed = [], [], 0
    for number in range(bench.extent.rounds):
        bench.run.step("motion to photon")
        flashes = list(_flashes(bench.extent.flash_s, SEED + number))
        cell = bench.cell(
            replace(
                asked,
                pictures=str(pictures.film(bench.folder, size.pixels, dim=True)),
                seconds=bench.extent.flash_s,
                seed=SEED + number,
                flashes_s=flashes,
            )
        )
        played = cell.told.played
        both = motion_to_photon(flashes, played.captured, played.got, played.began_ns)
        through.append(both[0])
        alone.append(both[1])
        bench.row("flash", size.name, WIFI, [cell])
        flashed += len(flashes) // 2
    seen = sum(map(len, through))
    bench.outcome.parameters |= {"flashes_shown": seen, "flashes_not_shown": flashed - seen}
    if any(map(len, through)):
        metrics = bench.outcome.metrics
        metrics["motion_to_photon_ms_p50"] = interval(through, median)
        metrics["motion_to_photon_ms_p90"] = interval(through, percentile(90))
        metrics["motion_to_photon_ms_p50_alone"] = interval(alone, median)
    else:
        bench.outcome.notes.append("motion to photon is not judged: no answer showed a flash")


def _flashes(seconds: float, seed: int) -> Iterator[float]:
    """Yield the times at which the light goes on and off in turn."""
    draw = random.Random(seed)
    at_s = WARM_UP_S
    while (at_s := at_s + draw.uniform(0.2, 0.35)) + FLASH_S < seconds:
        yield at_s
        at_s += FLASH_S
        yield at_s


def _channels(bench: Bench) -> None:
    """Answers on time on changing channels: Mez, and fixed qualities with tokens."""
    size = BY_NAME["480p"]
    own: list[Values] = []
    best_fixed: list[Values] = []
    for name, network in CHANGING.items():
        plain = replace(bench.asked(size, network, COMPUTE_MS), seconds=bench.extent.channel_s)
        arms = {ADAPTIVE: bench.within(plain)}
        for quality in QUALITIES_QUICK if bench.run.quick else QUALITIES:
            arms[f"tokens q{quality}"] = replace(
                plain,
                engine=replace(plain.engine, quality=quality, every=True, group=None, fresh=False),
                answer_ms=TOKENS_ANSWER_MS,
                quality=quality,
                tokens=TOKENS,
            )
        cells = bench.rounds(arms, name)
        on_time = {
            arm: [np.array([cell.shown.on_time_share]) for cell in of_arm] for arm, of_arm in cells.items()
        }
        for arm, of_arm in cells.items():
            bench.row(name, size.name, arm, of_arm)
        fixed = max((arm for arm in arms if arm != ADAPTIVE), key=lambda arm: float(np.mean(on_time[arm])))
        bench.outcome.metrics[f"on_time_share_{name}"] = interval(on_time[ADAPTIVE], mean)
        bench.outcome.metrics[f"on_time_share_{name}_tokens"] = interval(on_time[fixed], mean)
        bench.outcome.parameters[f"best_fixed_{name}"] = fixed
        own += on_time[ADAPTIVE]
        best_fixed += on_time[fixed]
    bench.outcome.metrics["on_time_share"] = interval(own, mean)
    if all(values.any() for values in best_fixed):
        bench.outcome.metrics["ratio_on_time_tokens"] = ratio_interval(own, best_fixed, mean)
    else:
        bench.outcome.notes.append(
            "the ratio to tokens is not judged: in a round, the best fixed quality had no answer on time"
        )


def _devices(bench: Bench) -> None:
    """Several devices on one engine, which cannot answer all of their frames."""
    asked = bench.asked(BY_NAME["240p"], NETWORKS[LOOPBACK], COMPUTE_MS, canned=True)
    for count in COUNTS_QUICK if bench.run.quick else COUNTS:
        cells, off = [], []
        for _ in range(bench.extent.rounds):
            bench.run.step(f"{count} devices on one engine")
            cell = bench.cell(replace(asked, devices=count))
            from_ns = cell.told.played.began_ns + round(WARM_UP_S * 1e9)
            got = [answer for answer in cell.told.played.got if answer.captured_ns >= from_ns]
            off.append(np.abs(shares(got, cell.told.cameras) - 1))
            cells.append(cell)
        bench.row("devices", "240p", f"{count}", cells)
        if count == max(COUNTS):
            bench.outcome.metrics["share_off_max"] = interval(off, _largest)


def _kill(bench: Bench) -> None:
    """Two engines share the frames, and one is killed."""
    asked = bench.asked(BY_NAME["240p"], NETWORKS[LOOPBACK], COMPUTE_MS, canned=True)
    gaps = []
    for _ in range(bench.extent.rounds):
        bench.run.step("one of two engines is killed")
        killed: list[int] = []
        told = bench.site.play(
            replace(
                asked,
                seconds=KILL_AFTER_S + GAP_WITHIN_S,
                devices=KILL_DEVICES,
                engines=2,
            ),
            kill_after(KILL_AFTER_S, killed),
        )
        # The last frames of a play may be in flight when it ends.
        until_ns = killed[0] + round((GAP_WITHIN_S - 0.5) * 1e9)
        gaps.append(gaps_s(told.played.got, killed[0], until_ns, told.cameras))
    bench.outcome.metrics["gap_s_max"] = interval(gaps, _largest)


def _largest(values: Values) -> float:
    return float(values.max())


# ---- results ---------------------------------------------------------------------------------------------


def _row(part: str, size: str, arm: str, cells: Sequence[Shot]) -> dict[str, Cell]:
    """Return the row of an arm: all its rounds together."""
    of = [cell.shown for cell in cells]
    e2e_ms = np.concatenate([one.e2e_ms for one in of])
    answer_bytes = np.concatenate([one.answer_bytes for one in of])
    frame_bytes = np.concatenate([one.frame_bytes for one in of])
    round_trips = [cell.told.round_trip_ms for cell in cells if cell.told.round_trip_ms is not None]
    row: dict[str, Cell] = {
        "part": part,
        "size": size,
        "arm": arm,
        "network": cells[0].asked.network.name,
        "compute_ms": cells[0].asked.engine.compute_ms,
        "devices": cells[0].asked.devices,
        "captured": sum(one.captured for one in of),
        "answers": len(e2e_ms),
        "rtt_ms": float(np.median(round_trips)) if round_trips else None,
        **{
            f"e2e_ms_p{percent}": float(np.percentile(e2e_ms, percent)) if len(e2e_ms) else None
            for percent in (50, 90, 99)
        },
        "on_time_share": float(np.mean([one.on_time_share for one in of])),
        "answered_share": float(np.mean([one.answered_share for one in of])),
        "request_bytes": float(frame_bytes.mean()) if len(frame_bytes) else None,
        "response_bytes": float(answer_bytes.mean()) if len(answer_bytes) else None,
    }
    for way, bits in _bandwidth(cells).items():
        row[f"{way}_mbps"] = bits
    for stage in STAGES:
        values = [one.stages_ms[stage] for one in of if stage in one.stages_ms]
        row[f"{stage}_ms_p50"] = float(np.median(np.concatenate(values))) if values else None
    late = [way["late_ms_max"] for cell in cells if cell.told.link for way in cell.told.link.values()]
    row["link_late_ms_max"] = max(late, default=None)
    return row


def _bandwidth(cells: Sequence[Shot]) -> dict[str, float]:
    """Return Mbit/s both ways: on the emulated link with headers; without a link, of answered frames."""
    seconds = sum(cell.asked.seconds for cell in cells)
    if all(cell.told.link for cell in cells):
        passed = {
            way: sum(cell.told.link[way]["bytes"] for cell in cells if cell.told.link)
            for way in ("up", "down")
        }
    else:
        seconds = sum(cell.shown.seconds for cell in cells)
        passed = {
            "up": sum(cell.shown.frame_bytes.sum() for cell in cells),
            "down": sum(cell.shown.answer_bytes.sum() for cell in cells),
        }
    return {way: float(count) * 8 / seconds / 1e6 for way, count in passed.items()}


def _tables(rows: Sequence[Mapping[str, Cell]]) -> list[Table]:
    ways = columns(
        "part",
        *("size", "arm", "RTT ms", "p50 ms", "p90", "on time", "answered"),
        *("up kB", "down kB", "Mbit/s", "down"),
    )
    where = columns("part", "size", "arm", *(stage.replace("_", " ") for stage in STAGES))
    for column in (*ways.columns[:3], *where.columns[:3]):
        column.no_wrap = True
    for row in rows:
        head = (str(row["part"]), str(row["size"]), str(row["arm"]))
        ways.add_row(
            *head,
            *(_number(row[name]) for name in ("rtt_ms", "e2e_ms_p50", "e2e_ms_p90")),
            *(_percent(row[name]) for name in ("on_time_share", "answered_share")),
            *(_number(row[name], 1e3) for name in ("request_bytes", "response_bytes")),
            *(_number(row[name]) for name in ("up_mbps", "down_mbps")),
        )
        where.add_row(*head, *(_number(row[f"{stage}_ms_p50"]) for stage in STAGES))
    where.title = "time by stage: medians in milliseconds"
    return [ways, where]


def _number(value: Cell, unit: float = 1.0) -> str:
    return figure(round(value / unit, 2)) if isinstance(value, (int, float)) else ""


def _percent(value: Cell) -> str:
    return f"{value:.1%}" if isinstance(value, float) else ""


def _plot(drawing: Figure, rows: Sequence[Mapping[str, Cell]]) -> None:
    axes = drawing.subplots()
    left = np.zeros(len(rows))
    labels = [f"{row['part']}, {row['size']}, {row['arm']}" for row in rows]
    for stage in STAGES:
        values = np.array([row[f"{stage}_ms_p50"] or 0.0 for row in rows], np.float64)
        axes.barh(range(len(rows)), values, left=left, label=stage.replace("_", " "))
        left += values
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds, medians of stages")
    axes.legend(frameon=False, ncols=2)


def _targets() -> list[Target]:
    paper = [
        Target(f"e2e_ms_p{percent}_{size.name}", "<=", bound)
        for size in SIZES
        for percent, bound in ((50, size.e2e_ms_p50), (90, size.e2e_ms_p90))
    ]
    return [
        Target("e2e_ms_p50_noop_240p", "<=", 5.0),
        Target("e2e_ms_p99_noop_240p", "<=", 10.0, full_only=True),
        Target("own_ms_p50_720p", "<=", 4.0),
        *paper,
        Target("ratio_on_time_tokens", ">=", 1.2, full_only=True),
        Target("share_off_max", "<=", 0.1),
        Target("gap_s_max", "<=", 1.0),
    ]


def _notes() -> list[str]:
    networks = {**NETWORKS, **CHANGING}
    return [
        "e2e: from the capture of a frame until the device's program has the answer to it. It includes all "
        "encoding and decoding except the decoding of the answer",
        "RTT: the round trip that the edge measured with pings, without waiting in the network's queue",
        "compute is emulated by a wait: 10 ms at 240p is the paper's (V100); 22.5, 40 and 90 ms are scaled "
        "by the number of pixels",
        "the paper's bytes: JPEGs of exactly its mean request and response, made in advance; the paper "
        "defines end to end as RTT plus compute",
        "bare: the same bytes and compute on the same channel as bare datagrams, without a messaging system: "
        "what the channel itself takes. No frame waits for the engine",
        "own_ms_p50_720p: a picture of the 720p play (quality 95 up, 90 down) that was encoded in advance, "
        "and an engine that does nothing: Mez's own time without encoding",
        f"motion to photon: from a light that goes on until a display of {DISPLAY_HZ:g} Hz shows it at its "
        "next refresh, without exposure, sensor and the delay of a real panel; alone: the device shows its "
        "own frames",
        f"on time: answers within {ON_TIME_MS:g} ms, of all captured frames",
        "own bytes, and Mez on changing channels: the engine's latency bound is half of the time that the "
        f"compute leaves of {ON_TIME_MS:g} ms, its accuracy floor is an SSIM of {FLOOR:g}; rungs are JPEG "
        "of 3 widths and 4 qualities, and H.264 of 3 widths and 4 quantisers",
        "tokens: at most two frames of fixed JPEG quality in flight, over Mez's own transport; the next "
        "captured frame takes a free token; on each channel the best quality counts",
        "one machine runs devices, edge, engines and links; links: "
        + "; ".join(f"{network.name}: {network.about}" for network in networks.values()),
    ]


_PLAY: Final = {
    "paths": _paths,
    "paper": _paper,
    "chosen": _chosen,
    "flash": _flash,
    "channels": _channels,
    "devices": _devices,
    "kill": _kill,
}


def _run(run: Run) -> Outcome:
    parts = run.parts(PARTS)
    run.step("starting", done=0)
    bench = Bench(run)
    extent = bench.extent
    bench.outcome.parameters = {
        "parts": list(parts),
        "fps": FPS,
        "rounds": extent.rounds,
        "seconds": extent.seconds,
        "channel_seconds": extent.channel_s,
        "warm_up_s": WARM_UP_S,
        "tokens": TOKENS,
        "floor_ssim": FLOOR,
    }
    outcome = bench.outcome
    for part in parts:
        try:
            _PLAY[part](bench)
        except (ExperimentError, ProcessError) as error:
            # The other parts take most of an hour.
            outcome.failures.append(f"{part}: {error}")
    outcome.targets = _targets()
    outcome.tables = list(_tables(outcome.rows))
    outcome.notes = [*_notes(), *outcome.notes]
    if run.quick:
        outcome.notes.append("a quick run has few answers: no p99 and no ratio to tokens is judged")
    late_ms = [row["link_late_ms_max"] for row in outcome.rows]
    late_ms_max = max((late for late in late_ms if isinstance(late, float)), default=0.0)
    outcome.parameters["link_late_ms_max"] = late_ms_max
    if late_ms_max > LINK_LATE_MS:
        outcome.notes.append(
            f"the emulator of the links itself caused delays of up to {late_ms_max:.0f} ms: the machine did "
            "other work, and the measured times include these delays"
        )
    if outcome.rows:
        outcome.plot = lambda drawing: _plot(drawing, outcome.rows)
    return outcome


OFFLOAD: Final = Experiment(
    name="offload",
    summary="a frame up, a picture back: time by stage, the paper's table, tokens, killed engines",
    needs="the demo's video (fetched once)",
    seconds_quick=150,
    seconds_full=3700,
    run=_run,
)
