"""Measures the cost of the page, with an open grid of 16 cameras, for the edge, links and applications."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from mez._processes import run_to_end
from mez_bench import grid
from mez_bench.arms import in_turn
from mez_bench.children import mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.hall import CAMERAS, PARAMETERS, Hall, Watched
from mez_bench.report import columns, figure
from mez_bench.stats import Values, interval, mean, median, percentile, ratio_interval

if TYPE_CHECKING:
    from mez_bench.children import Child
    from mez_bench.run import Run

ALONE: Final = "alone"
BESIDE: Final = "beside"
SETTINGS: Final = (ALONE, BESIDE)
"""Readers of the cameras: only the page, or also an application with a contract on each camera."""

CLOSED: Final = "closed"
OPEN: Final = "open"
PAGE: Final = (CLOSED, OPEN)

VIEW_SECONDS_MAX: Final = 2 * grid.FIRST_VIEW_S_MAX
SETTLE_S: Final = 3.0
VIEWS_END_S: Final = 6.0
"""Time after the page is closed: the edge stops making pictures 5 s after the last request."""

CORE_SHARE_MAX: Final = 0.10
PAGE_BYTES_MAX: Final = 400_000
FIRST_VIEW_MS_MAX: Final = 1_000
P95_RATIO_MAX: Final = 1.05
LINK_BYTES_RATIO_MAX: Final = 1.02


@dataclass(frozen=True, slots=True)
class Opened:
    """The figures of a client with the page's requests.

    Attributes:
        first_view_ms: Time from the first connection until each camera has a picture.
        first_list_ms: Time from the first connection until the list of cameras.
        page_bytes: Transferred bytes of the page's files: bodies and headers over HTTP/1.1.
        pictures: New pictures of all cameras during the measurement.
        picture_age_ms: Their ages when the edge answered.
        picture_bytes: Their bytes.
        errors: Error messages of failed requests.
        cpu_s: Processor time of the client.
    """

    first_view_ms: float
    first_list_ms: float
    page_bytes: int
    pictures: int
    picture_age_ms: Sequence[float]
    picture_bytes: int
    errors: Sequence[str]
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """Some seconds with the page open or closed.

    Attributes:
        seconds: Duration.
        edge_share: Processor time of the edge and its helper processes, divided by elapsed time.
        cameras_share: This share for all camera brokers, with their ffmpeg.
        link_bytes_per_second: Payload of all cameras that crossed their links.
        ages_ms: Ages of the application's frames; empty without an application.
        came_as: Encoding of most of these frames.
        opened: Figures of the page; `None`: it was closed.
    """

    seconds: float
    edge_share: float
    cameras_share: float
    link_bytes_per_second: float
    ages_ms: Values
    came_as: str
    opened: Opened | None


Turns = Mapping[tuple[str, str], Sequence[Turn]]
"""The turns by setting, and by whether the page is open; one for each round."""


class PageHall(Hall):
    """A hall whose page is opened and closed."""

    def turn(self, application: Child | None, page: str, seconds: float) -> Turn:
        """Measure a turn."""
        asks, view = self._opened() if page == OPEN else (None, None)
        time.sleep(SETTLE_S if asks else VIEWS_END_S)
        for child in (asks, application):
            if child is not None:
                child.ask("begin")
        link_bytes, (edge_ns, cameras_ns), begun = self.link_bytes(), self.cpu_ns(), time.monotonic()
        time.sleep(seconds)
        took_s, (edge_end_ns, cameras_end_ns) = time.monotonic() - begun, self.cpu_ns()
        link_bytes = self.link_bytes() - link_bytes
        read = application.ask("end") if application is not None else None
        opened = None
        if asks is not None and view is not None:
            opened = _opened(view, asks.ask("end"))
            self._run.children.stop(asks)
        return Turn(
            seconds=took_s,
            edge_share=(edge_end_ns - edge_ns) / 1e9 / took_s,
            cameras_share=(cameras_end_ns - cameras_ns) / 1e9 / took_s,
            link_bytes_per_second=link_bytes / took_s,
            ages_ms=np.array(read["ages_ms"] if read else [], float),
            came_as=max(read["encodings"], key=read["encodings"].get, default="-") if read else "-",
            opened=opened,
        )

    def _opened(self) -> tuple[Child, Mapping[str, float]]:
        """Open the page, and return its client and the figures of the first view."""
        keys = self.brokers.keys
        words = [sys.executable, str(Path(grid.__file__)), str(keys / "authority.pem")]
        asks = self._run.children.start("page", words)
        asks.ready()
        said = run_to_end("mez edge open", mez("edge", "open", "--edge", self.brokers.socket))
        link = re.search(r"https://\S+", said)
        if link is None:
            raise ExperimentError(f"mez edge open printed no link: {said!r}")
        view = asks.ask(link[0], VIEW_SECONDS_MAX)
        if view["cameras"] != CAMERAS:
            raise ExperimentError(f"the page shows {view['cameras']} cameras, not {CAMERAS}")
        return asks, view


def _opened(view: Mapping[str, float], counts: Mapping[str, Sequence[float]]) -> Opened:
    return Opened(
        first_view_ms=view["first_view_ms"],
        first_list_ms=view["first_list_ms"],
        page_bytes=int(view["page_bytes"]),
        pictures=int(counts["pictures"]),  # type: ignore[call-overload]
        picture_age_ms=counts["picture_age_ms"],
        picture_bytes=int(counts["picture_bytes"]),  # type: ignore[call-overload]
        errors=[str(error) for error in counts["errors"]],
        cpu_s=float(counts["cpu_s"]),  # type: ignore[arg-type]
    )


def _run(run: Run) -> Outcome:
    rounds, seconds = (1, 6.0) if run.quick else (5, 30.0)
    settings = run.parts(SETTINGS)
    run.expect(rounds * len(settings) * len(PAGE))
    run.step(f"starting {CAMERAS} cameras", done=0)
    hall = PageHall(run)
    turns: dict[tuple[str, str], list[Turn]] = {(setting, page): [] for setting in settings for page in PAGE}
    for number in range(rounds):
        for setting in in_turn(settings, number):
            application = hall.application() if setting == BESIDE else None
            if application is not None:
                run.step(f"{setting}, start of the application", done=0)
                # At first each camera decodes its source. That is not the page's doing.
                Watched(hall, application).settle()
            for page in in_turn(PAGE, number):
                run.step(f"{setting}, page {page}", done=0)
                turns[setting, page].append(hall.turn(application, page, seconds))
                run.step(f"{setting}, page {page}")
            if application is not None:
                run.children.stop(application)
    outcome = _outcome(turns)
    outcome.parameters = {
        **PARAMETERS,
        "client": "as the grid asks, over HTTP/1.1; nothing is decoded; at a low priority",
        "rounds": rounds,
        "seconds_per_turn": seconds,
    }
    return outcome


def _outcome(turns: Turns) -> Outcome:
    outcome = Outcome()
    settings = list(dict.fromkeys(setting for setting, _ in turns))
    for setting in settings:
        _of_setting(outcome, setting, turns[setting, CLOSED], turns[setting, OPEN])
    opened = [turn.opened for of_arm in turns.values() for turn in of_arm if turn.opened is not None]
    outcome.metrics["page_bytes"] = interval([np.array([float(one.page_bytes)]) for one in opened], median)
    outcome.metrics["page_errors"] = interval([np.array([float(len(one.errors))]) for one in opened], mean)
    names = outcome.metrics
    targets = [
        *(Target(name, "<=", CORE_SHARE_MAX) for name in names if name.startswith("page_core_share_")),
        Target("page_bytes", "<=", PAGE_BYTES_MAX),
        *(Target(name, "<=", FIRST_VIEW_MS_MAX) for name in names if name.startswith("first_view_ms")),
        Target("p95_ratio_page_open", "<=", P95_RATIO_MAX, full_only=True),
        Target("link_bytes_ratio_page", "<=", LINK_BYTES_RATIO_MAX, full_only=True),
        Target("page_errors", "==", 0),
    ]
    outcome.targets = [target for target in targets if target.metric in names]
    outcome.tables = [_table(turns)]
    outcome.notes = [
        "page_core_share_16: processor time of the edge with the page open minus with the page closed, "
        "divided by elapsed time, without other readers. page_core_share_16_beside: the same while an "
        "application with a contract reads each camera",
        "first_view_ms: from the first connection until all 16 cameras have a picture: files, sign-in, list, "
        "pictures; first_list_ms: until the list of cameras",
        "client_core_share: processor time of the client, which stands for a browser on another host, "
        "and runs at a low priority for that reason",
        "p95_ratio_page_open, link_bytes_ratio_page: page open divided by page closed, with the application",
    ]
    outcome.notes += [f"failed: {error}" for one in opened for error in one.errors[:1]][:5]
    return outcome


def _of_setting(outcome: Outcome, setting: str, closed: Sequence[Turn], opened: Sequence[Turn]) -> None:
    """Add the figures of a setting."""
    # Without other readers, metrics have the targets' names without a suffix.
    suffix = "" if setting == ALONE else f"_{setting}"
    more = [
        np.array([after.edge_share - before.edge_share]) for before, after in zip(closed, opened, strict=True)
    ]
    outcome.metrics[f"page_core_share_16{suffix}"] = interval(more, mean)
    for page, of_arm in ((CLOSED, closed), (OPEN, opened)):
        for name in ("edge_share", "cameras_share"):
            values = [np.array([getattr(turn, name)]) for turn in of_arm]
            outcome.metrics[f"{name.replace('_', '_core_')}_{setting}_{page}"] = interval(values, mean)
    views = [turn.opened for turn in opened if turn.opened is not None]
    for name in ("first_view_ms", "first_list_ms"):
        outcome.metrics[f"{name}{suffix}"] = interval(
            [np.array([getattr(view, name)]) for view in views], median
        )
    clients = [np.array([view.cpu_s / turn.seconds]) for view, turn in zip(views, opened, strict=True)]
    outcome.metrics[f"client_core_share{suffix}"] = interval(clients, mean)
    rates = [
        np.array([view.pictures / CAMERAS / turn.seconds]) for view, turn in zip(views, opened, strict=True)
    ]
    outcome.metrics[f"pictures_per_second{suffix}"] = interval(rates, mean)
    ages = [np.array(view.picture_age_ms, float) for view in views]
    if all(of_view.size for of_view in ages):
        outcome.metrics[f"picture_age_ms_p50{suffix}"] = interval(ages, median)
    if setting == BESIDE:
        before, after = ([turn.ages_ms for turn in of_arm] for of_arm in (closed, opened))
        if not all(of_turn.size for of_turn in (*before, *after)):
            raise ExperimentError("the application got no frames")
        outcome.metrics["age_ms_p95_page_closed"] = interval(before, percentile(95))
        outcome.metrics["age_ms_p95_page_open"] = interval(after, percentile(95))
        outcome.metrics["p95_ratio_page_open"] = ratio_interval(after, before, percentile(95))
        crossed = [[np.array([turn.link_bytes_per_second]) for turn in of_arm] for of_arm in (opened, closed)]
        outcome.metrics["link_bytes_ratio_page"] = ratio_interval(crossed[0], crossed[1], mean)
    for page, of_arm in ((CLOSED, closed), (OPEN, opened)):
        outcome.rows += [_row(setting, page, turn) for turn in of_arm]


def _row(setting: str, page: str, turn: Turn) -> dict[str, Cell]:
    row: dict[str, Cell] = {"cameras_read": setting, "page": page, "seconds": turn.seconds}
    row |= {"edge_core_share": turn.edge_share, "cameras_core_share": turn.cameras_share}
    row |= {"link_bytes_per_second": turn.link_bytes_per_second, "came_as": turn.came_as}
    if turn.ages_ms.size:
        row |= {"frames": int(turn.ages_ms.size), "age_ms_p95": float(np.percentile(turn.ages_ms, 95))}
    if turn.opened is not None:
        row |= {"pictures": turn.opened.pictures, "picture_bytes": turn.opened.picture_bytes}
        row |= {"first_view_ms": turn.opened.first_view_ms, "page_bytes": turn.opened.page_bytes}
    return row


def _table(turns: Turns) -> Table:
    table = columns("readers", "page", "edge, cores", "cameras, cores", "link Mbit/s", "p95 ms")
    table.add_column("pictures/s per camera", justify="right")
    readers = {ALONE: "only the page", BESIDE: "an application with contracts"}
    for (setting, page), of_arm in turns.items():
        ages = np.concatenate([turn.ages_ms for turn in of_arm])
        rates = [turn.opened.pictures / CAMERAS / turn.seconds for turn in of_arm if turn.opened is not None]
        table.add_row(
            readers[setting],
            page,
            *(figure(float(np.mean([getattr(turn, name) for turn in of_arm]))) for name in _SHARES),
            figure(float(np.mean([turn.link_bytes_per_second for turn in of_arm])) * 8 / 1e6),
            figure(float(np.percentile(ages, 95))) if ages.size else "-",
            figure(float(np.mean(rates))) if rates else "-",
        )
    return table


_SHARES: Final = ("edge_share", "cameras_share")

PAGE_COST: Final = Experiment(
    name="page",
    summary="cost of the page with 16 cameras for the edge, links and applications with contracts",
    needs="ffmpeg with libx264, the demo's video (fetched once)",
    seconds_quick=90,
    seconds_full=960,
    run=_run,
)
