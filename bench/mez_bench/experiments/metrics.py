"""Measures the cost of an edge's own metrics and of being scraped, with many cameras."""

from __future__ import annotations

import http.client
import secrets
import ssl
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

import mez as mez_client
from mez._processes import free_port
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Experiment, Outcome, Target
from mez_bench.report import figure
from mez_bench.stats import Interval, interval, mean, median
from mez_bench.systems.mez import Brokers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mez_bench.run import Run

CAMERAS: Final = 100
SCRAPED_EVERY_S: Final = 5.0
ARMS: Final = ("plain", "scraped")
"""An edge without page and metrics, and an edge with both that is scraped."""

PLAIN, SCRAPED = ARMS
SETTLE_S: Final = 5.0
SECONDS: Final = 60
SECONDS_QUICK: Final = 15
ROUNDS: Final = 5
ROUNDS_QUICK: Final = 1
LOG_BYTES: Final = 16 << 20
SIZE: Final = (240, 320, 3)
CORE_SHARE_MAX: Final = 0.01


class Scraper:
    """A scraper that keeps its connection, as Prometheus does.

    Args:
        port: Port of the edge's metrics on this host.
        authority: File with the certificate of the site's authority, to verify the edge with.
        token: The token that permits to scrape.
    """

    def __init__(self, port: int, authority: Path, token: str) -> None:
        context = ssl.create_default_context(cafile=authority)
        self._connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
        self._headers = {"Authorization": f"Bearer {token}"}
        self.took_ms: list[float] = []

    def scrape(self) -> bytes:
        """Scrape once, and return the text.

        Raises:
            ExperimentError: The edge gives no metrics.
        """
        begin = time.monotonic()
        try:
            self._connection.request("GET", "/metrics", headers=self._headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ExperimentError(f"the edge cannot be scraped: {error}") from error
        if answer.status != http.HTTPStatus.OK:
            raise ExperimentError(f"the edge refused the scrape: {answer.status} {text.decode()}")
        self.took_ms.append((time.monotonic() - begin) * 1e3)
        return text

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def _run(run: Run) -> Outcome:
    rounds, seconds = (ROUNDS_QUICK, SECONDS_QUICK) if run.quick else (ROUNDS, SECONDS)
    run.expect(rounds * len(ARMS))
    shares: dict[str, list[float]] = {arm: [] for arm in ARMS}
    took_ms: list[float] = []
    text = b""
    for turn in range(rounds):
        # In turns, so that other work of the host affects both.
        for arm in ARMS if turn % 2 == 0 else reversed(ARMS):
            run.step(f"{arm}: {CAMERAS} cameras", done=0)
            with run.apart():
                share, scraper, seen = _arm(run, arm, seconds)
            shares[arm].append(share)
            if scraper is not None:
                took_ms += scraper.took_ms
                text = seen
            run.step(f"{arm}: {share:.4f} of a core")
    return _outcome(shares, took_ms, text, seconds)


def _arm(run: Run, arm: str, seconds: float) -> tuple[float, Scraper | None, bytes]:
    """Return the share of a core that the edge used, the scraper, and the last text that it read."""
    port, token = free_port(), secrets.token_hex(32)
    words: tuple[str, ...] = ("--cameras-max", f"{CAMERAS}")
    if arm == SCRAPED:
        path = run.folder / "scrape.token"
        path.touch(mode=0o600)
        path.write_text(f"{token}\n")
        words += ("--web", f"127.0.0.1:{port}", "--scrape-token-file", f"{path}")
    brokers = Brokers(run, LOG_BYTES, edge_words=words)
    with ExitStack() as stack:
        for number in range(CAMERAS):
            camera = stack.enter_context(
                mez_client.publisher(
                    f"cell{number // 10}/cam{number}",
                    edge=brokers.link_address,
                    keys=brokers.keys,
                    state=run.folder / "state",
                    memory_bytes=LOG_BYTES,
                    link="quic",
                )
            )
            # One after the other: a hundred handshakes at once would not be part of the metrics' cost.
            camera.wait_connected(timeout=60)
            camera.send(np.zeros(SIZE, np.uint8))
        scraper = Scraper(port, brokers.keys / "authority.pem", token) if arm == SCRAPED else None
        if scraper is not None:
            stack.callback(scraper.close)
        text = b"" if scraper is None else scraper.scrape()
        time.sleep(SETTLE_S)
        begin_ns, begin = brokers.edge.cpu_ns(), time.monotonic()
        for scrape in range(round(seconds / SCRAPED_EVERY_S)):
            if scraper is not None:
                text = scraper.scrape()
            time.sleep(max(begin + (scrape + 1) * SCRAPED_EVERY_S - time.monotonic(), 0))
        share = (brokers.edge.cpu_ns() - begin_ns) / 1e9 / (time.monotonic() - begin)
    return share, scraper, text


def _outcome(
    shares: dict[str, list[float]], took_ms: Sequence[float], text: bytes, seconds: float
) -> Outcome:
    more = [np.array([scraped - plain]) for plain, scraped in zip(*shares.values(), strict=True)]
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    metrics = {
        f"edge_core_share_{arm}": interval([np.array([s]) for s in of], mean) for arm, of in shares.items()
    }
    metrics |= {
        "metrics_core_share_100": interval(more, mean),
        "metrics_scrape_ms_p50": interval([np.array(took_ms)], median),
        "metrics_series_100": Interval.exactly(series),
        "metrics_bytes_100": Interval.exactly(len(text)),
    }
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("edge", "share of a core"):
        table.add_column(column, justify="left" if column == "edge" else "right")
    for arm in ARMS:
        table.add_row(arm, figure(metrics[f"edge_core_share_{arm}"].median))
    return Outcome(
        parameters={
            "cameras": CAMERAS,
            "scraped_every_seconds": SCRAPED_EVERY_S,
            "seconds": seconds,
            "rounds": len(more),
        },
        metrics=metrics,
        rows=[{"edge": arm, "core_share": share} for arm, of in shares.items() for share in of],
        targets=[Target("metrics_core_share_100", "<=", CORE_SHARE_MAX)],
        tables=[table],
        notes=[
            "metrics_core_share_100: processor time of an edge that samples its state once a second and is "
            "scraped every 5 s, minus the time of an edge without the web port, divided by elapsed time. "
            "Cameras are connected and publish nothing",
        ],
    )


METRICS: Final = Experiment(
    name="metrics",
    summary="cost of metrics and scrapes for an edge with 100 cameras",
    needs="nothing but the build",
    seconds_quick=60,
    seconds_full=780,
    run=_run,
)
