"""Measures how long honest clients take to connect while attackers hold connections."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

import mez as mez_client
from mez import _native
from mez._processes import run_to_end
from mez_bench import attackers
from mez_bench.arms import in_turn
from mez_bench.attackers import DRIBBLE, HANDSHAKE, IDLE, KINDS
from mez_bench.children import mez
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS: Final = (10, 100, 300, 1000)
MOST: Final = COUNTS[-1]

APART: Final = "127.0.0.2"
"""The attackers' own address."""

BESIDE: Final = "127.0.0.1"
"""The address of the honest clients, and of attackers behind the same router."""

APPLICATION: Final = "application"
CAMERA_TCP: Final = "camera over TCP"
CAMERA_QUIC: Final = "camera over QUIC"
ENROLMENT: Final = "enrolment"
CLIENTS: Final = (APPLICATION, CAMERA_TCP, CAMERA_QUIC, ENROLMENT)

TRIES: Final = 4
"""Tries of each client during an attack."""

CONNECT_S_MAX: Final = 15.0
PACKETS: Final = 40
"""Different first packets of QUIC that attackers send: more than the edge answers without a Retry."""

SETTLE_S: Final = 1.0
"""Time after the attackers have connected, so that the edge has met all of them."""

AFTERWARDS_S: Final = 0.2
"""Time after the attackers have left."""

Arm = tuple[str, int, str]
"""Kind, number and address of attackers."""

Times = dict[Arm, dict[str, list[Values]]]


class Site:
    """An edge with all its ports, and honest clients that connect to it.

    Args:
        run: The run that it belongs to.
    """

    def __init__(self, run: Run) -> None:
        self._folder = run.folder
        self._keys = run.folder / "keys"
        self._tokens: list[str] = []
        self._enrolled = 0
        run_to_end("mez keys init", mez("keys", "init", "--site", "bench", "--keys", str(self._keys)))
        granted = mez("keys", "grant", "app/**", "watch,observe", "**", "--keys", str(self._keys))
        run_to_end("mez keys grant", granted)
        any_port = "127.0.0.1:0"
        self.edge = run.children.start(
            "edge",
            mez(
                *("edge", "--keys", str(self._keys), "--memory-bytes", f"{64 << 20}", "--listen", any_port),
                *("--grpc", any_port, "--enrol", any_port, "--socket", str(run.folder / "edge.sock")),
            ),
        )
        said = dict(word.split("=", 1) for word in self.edge.ready().split())
        self.link, self.grpc, self.enrol = said["link"], said["grpc"], said["enrol"]

    def ports(self) -> list[str]:
        """Return the ports. The link's is the first: it is for TCP and UDP."""
        return [address.rpartition(":")[2] for address in (self.link, self.grpc, self.enrol)]

    def prepare(self, enrolments: int) -> None:
        """Make tokens for this many enrolments, before anything is timed."""
        while len(self._tokens) < enrolments:
            said = self._mez("keys", "token", "app/late", "--keys", str(self._keys))[1]
            self._tokens.append(said.split()[0])

    def come(self, client: str) -> float:
        """Connect a client as users do; return how many milliseconds it took.

        Raises:
            mez.Error: The client could not connect.
        """
        ways: dict[str, Callable[[], float]] = {
            APPLICATION: self._application,
            CAMERA_TCP: lambda: self._camera("tcp"),
            CAMERA_QUIC: lambda: self._camera("quic"),
            ENROLMENT: self._enrolment,
        }
        return ways[client]()

    def _application(self) -> float:
        begin = time.perf_counter()
        mez_client.cameras(edge=self.grpc, keys=self._keys, connect_timeout=CONNECT_S_MAX)
        return _since(begin)

    def _camera(self, link: str) -> float:
        begin = time.perf_counter()
        state = self._folder / "state"
        with mez_client.publisher(
            f"bench/{link}", edge=self.link, keys=self._keys, link=link, state=state, memory_bytes=8 << 20
        ) as camera:
            camera.wait_connected(CONNECT_S_MAX)
            return _since(begin)

    def _enrolment(self) -> float:
        token = self._tokens.pop()
        self._enrolled += 1
        took, _ = self._mez(
            "keys", "enrol", token, "--edge", self.enrol, "--keys", str(self._folder / f"{self._enrolled}")
        )
        return took

    def _mez(self, *words: str) -> tuple[float, str]:
        """Run a command within this process; return the milliseconds that it took, and its output."""
        said, told = self._folder / "said", self._folder / "told"
        with _into(said, told):
            begin = time.perf_counter()
            status = _native.cli_main(["mez", *words], [])
            took = _since(begin)
        if status != 0:
            raise mez_client.ConnectError(" ".join(told.read_text().split()))
        return took, said.read_text()


def _since(begin: float) -> float:
    return (time.perf_counter() - begin) * 1e3


@contextlib.contextmanager
def _into(said: Path, told: Path) -> Iterator[None]:
    """Redirect the standard output and error of compiled code into files."""
    kept = [(stream, os.dup(stream), path) for stream, path in ((1, said), (2, told))]
    try:
        for stream, _, path in kept:
            with path.open("wb") as file:
                os.dup2(file.fileno(), stream)
        yield
    finally:
        for stream, before, _ in kept:
            os.dup2(before, stream)
            os.close(before)


def _first_packets(run: Run, site: Site, keys: Path) -> Path:
    """Write the first packets of cameras' QUIC connections to a file, a line of hex each."""
    packets: dict[bytes, bytes] = {}
    with contextlib.ExitStack() as opened:
        recorder = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        recorder.bind(("127.0.0.1", 0))
        recorder.settimeout(5.0)
        address = f"127.0.0.1:{recorder.getsockname()[1]}"
        for number in range(4):
            # Without an answer, they dial in a loop.
            opened.enter_context(
                mez_client.publisher(
                    f"bench/dials{number}",
                    edge=address,
                    keys=keys,
                    link="quic",
                    state=run.folder / "dials",
                    memory_bytes=8 << 20,
                )
            )
        while len(packets) < PACKETS:
            packet = recorder.recv(2048)
            # RFC 9000, section 17.2: a long header of type 0, the version, the connection id.
            if len(packet) >= 1200 and packet[0] & 0xB0 == 0x80:
                packets.setdefault(packet[6 : 6 + packet[5]], packet)
    path = run.folder / "packets"
    path.write_text("".join(f"{packet.hex()}\n" for packet in packets.values()))
    return path


def _arms(quick: bool) -> list[Arm]:
    counts = (MOST,) if quick else COUNTS
    beside = [(kind, MOST, BESIDE) for kind in ((DRIBBLE,) if quick else (IDLE, DRIBBLE, HANDSHAKE))]
    return [*((kind, count, APART) for kind in KINDS for count in counts), *beside]


def _run(run: Run) -> Outcome:
    rounds = 4 if run.quick else 10
    run.step("starting", done=0)
    site = Site(run)
    arms = _arms(run.quick)
    packets = _first_packets(run, site, run.folder / "keys")
    command = [sys.executable, str(Path(attackers.__file__)), "--packets", str(packets), *site.ports()]
    horde = run.children.start("attackers", command)
    horde.ready()
    site.prepare(len(CLIENTS))
    for client in CLIENTS:
        site.come(client)
    run.expect(rounds * len(arms))
    times: Times = defaultdict(lambda: defaultdict(list))
    plain: Times = defaultdict(lambda: defaultdict(list))
    failures: list[str] = []
    did: dict[Arm, dict[str, int]] = {}
    for turn in range(rounds):
        for arm in in_turn(arms, turn):
            kind, count, source = arm
            run.step(f"{count} attackers, {kind}", done=0)
            site.prepare(2 * TRIES)
            _measure(site, arm, plain, failures)
            horde.ask(f"attack {kind}|{count}|{source}", CONNECT_S_MAX * 2)
            try:
                time.sleep(SETTLE_S)
                _measure(site, arm, times, failures)
            finally:
                did[arm] = horde.ask("stop", CONNECT_S_MAX)
            time.sleep(AFTERWARDS_S)
            run.step(f"{count} attackers, {kind}")
    rss_mb = site.edge.memory()[1]
    outcome = _outcome(arms, times, plain, did)
    outcome.metrics["honest_refused"] = Interval.exactly(len(failures))
    outcome.metrics["edge_rss_mb_max"] = Interval.exactly(rss_mb)
    outcome.targets.append(Target("honest_refused", "==", 0))
    outcome.parameters = {
        "rounds": rounds,
        "tries_per_round": TRIES,
        "attackers": sorted({count for _, count, _ in arms}),
        "attackers_are": "this number at each of the three TCP ports, or this number at the UDP port",
        "comebacks_per_second": attackers.COMEBACKS_PER_SECOND,
        "honest_clients_from": BESIDE,
    }
    outcome.notes += [f"not admitted: {failure}" for failure in failures[:5]]
    return outcome


def _measure(site: Site, arm: Arm, into: Times, failures: list[str]) -> None:
    measured: dict[str, list[float]] = {client: [] for client in CLIENTS}
    for _ in range(TRIES):
        for client in CLIENTS:
            try:
                measured[client].append(site.come(client))
            except mez_client.Error as error:
                failures.append(f"{client} beside {arm[1]} attackers ({arm[0]}): {error}")
                measured[client].append(CONNECT_S_MAX * 1e3)
    for client, values in measured.items():
        into[arm][client].append(np.array(values))


def _outcome(
    arms: Sequence[Arm], times: Times, plain: Times, did: Mapping[Arm, Mapping[str, int]]
) -> Outcome:
    outcome = Outcome()
    ratios: dict[tuple[Arm, str], Interval] = {}
    for arm in arms:
        for client in CLIENTS:
            attacked, alone = times[arm][client], plain[arm][client]
            ratio = ratios[arm, client] = ratio_interval(attacked, alone, median)
            outcome.rows.append(
                {
                    "attack": arm[0],
                    "attackers": arm[1],
                    "from": "the clients' address" if arm[2] == BESIDE else "another address",
                    "client": client,
                    "ms_p50": median(np.concatenate(attacked)),
                    "ms_max": float(np.concatenate(attacked).max()),
                    "alone_ms_p50": median(np.concatenate(alone)),
                    "ratio": ratio.median,
                    "connections_opened": did[arm].get("opened", 0),
                    "connections_closed_by_the_edge": did[arm].get("closed_by_the_edge", 0),
                }
            )
    for name, source in (("", APART), ("same_address_", BESIDE)):
        of = [ratio for (arm, _), ratio in ratios.items() if arm[1] == MOST and arm[2] == source]
        outcome.metrics[f"{name}honest_connect_ratio_{MOST}"] = max(of, key=lambda ratio: ratio.median)
    for client in CLIENTS:
        alone = [values for arm in arms for values in plain[arm][client]]
        outcome.metrics[f"{client.replace(' ', '_').lower()}_alone_ms_p50"] = interval(alone, median)
    outcome.targets = [Target(f"honest_connect_ratio_{MOST}", "<=", 2.0)]
    outcome.tables = [_table(outcome.rows)]
    outcome.plot = lambda drawing: _plot(drawing, outcome.rows)
    outcome.notes = [
        "the time to connect is that of the calls of users: mez.cameras(), mez.publisher() until it is "
        "connected, mez keys enrol; each with new connections",
        "attackers reconnect when the edge closes their connections; they run on the same processors as the "
        "edge and the clients, which increases the ratio",
        "the ratio in the metrics is that of the worst kind of client and attack",
    ]
    return outcome


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("attack", "attackers", "from", "client"):
        table.add_column(column, no_wrap=True, justify="right" if column == "attackers" else "left")
    for column in ("p50 ms", "max ms", "alone ms", "ratio"):
        table.add_column(column, justify="right")
    for row in rows:
        words = [str(row[name]) for name in ("attack", "attackers", "from", "client")]
        numbers = [figure(float(row[name] or 0.0)) for name in ("ms_p50", "ms_max", "alone_ms_p50", "ratio")]
        table.add_row(*words, *numbers)
    return table


def _plot(drawing: Figure, rows: Sequence[Mapping[str, Cell]]) -> None:
    axes = np.atleast_1d(drawing.subplots(1, len(KINDS), sharey=True))
    for panel, kind in zip(axes, KINDS, strict=True):
        for client in CLIENTS:
            of = [
                row
                for row in rows
                if (row["attack"], row["client"], row["from"]) == (kind, client, "another address")
            ]
            counts = [0.0, *(float(row["attackers"] or 0.0) for row in of)]
            alone = float(np.median([float(row["alone_ms_p50"] or 0.0) for row in of]))
            panel.plot(
                counts, [alone, *(float(row["ms_p50"] or 0.0) for row in of)], marker="o", label=client
            )
        panel.set_title(kind, fontsize="medium")
        panel.set_xlabel("attackers")
        panel.set_ylim(bottom=0)
    axes[0].set_ylabel("time to connect, ms")
    axes[-1].legend(frameon=False, fontsize="small")


FLOOD: Final = Experiment(
    name="flood",
    summary="attackers that hold connections: how long honest clients take to connect",
    needs="nothing but the build",
    seconds_quick=55,
    seconds_full=600,
    run=_run,
)
