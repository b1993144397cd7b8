"""Measures how soon streams end after a grant is taken back or a revocation, and the cost of rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

import mez as mez_client
from mez._processes import run_to_end
from mez_bench.arms import in_turn
from mez_bench.children import mez
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Cell, Experiment, Outcome, Target
from mez_bench.report import figure
from mez_bench.run import Run
from mez_bench.stats import Interval, Values, interval, median, ratio_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REVOKED: Final = "revoked"
UNGRANTED: Final = "grant taken back"
LIVE: Final = "live stream, gRPC"
READING: Final = "reading of the past, gRPC"
LIVE_HERE: Final = "live stream, socket"
READING_HERE: Final = "reading of the past, socket"
QUIC: Final = "camera, QUIC"
TCP: Final = "camera, TCP"

ENDED_S_MAX: Final = 20.0
"""How long a trial waits for a stream to end. One that has not ended counts with this time."""

COMMAND_S_MAX: Final = 30.0
FPS: Final = 30.0
PIXELS: Final = (48, 64, 3)
GRANTS: Final = (1, 1000)
APPLIED_S: Final = 1.4
"""Time after a change of the file of rights: the edge reads the file once a second."""

BLOCK_S: Final = 1.5
"""How long frames are timed before the file is changed again."""

CAMERA: Final = "bench/steady"
COST: Final = "bench/cost"

SEED: Final = 39

USER: Final = 61_000
"""First of the user ids whose programs stream through the Unix socket. The users need not exist."""

PROGRAM: Final = """
import os, sys
import mez
user, socket, camera, past = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "past"
os.setgroups([])
os.setgid(user)
os.setuid(user)
since, deliver = ("-2s", "every") if past else (None, None)
with mez.subscribe(camera, edge="unix://" + socket, since=since, deliver=deliver, timeout=60) as frames:
    try:
        for frame in frames:
            if frames.delivered == 1:
                print("ready", flush=True)
        reason = "it ended without a reason"
    except mez.Error as error:
        reason = str(error)
    print(reason, flush=True)
"""
"""A program of another user. It runs as root until it has imported what it needs."""

Kind = tuple[str, str]
"""What is done (`REVOKED` or `UNGRANTED`), and to which kind of stream or link."""


class Site:
    """An edge with all its ports, and a camera that publishes all the time.

    Args:
        run: The run that it belongs to.
    """

    def __init__(self, run: Run) -> None:
        self.children = run.children
        self.folder = run.folder
        self.keys = run.folder / "keys"
        self._enrolled = 0
        self.mez("keys", "init", "--site", "bench")
        any_port = "127.0.0.1:0"
        # A folder that other users of this host can reach. It holds only the socket.
        self._public = tempfile.TemporaryDirectory(prefix="mez-rights-")
        self.socket = Path(self._public.name) / "edge.sock"
        self.edge = run.children.start(
            "edge",
            mez(
                *("edge", "--keys", str(self.keys), "--memory-bytes", f"{64 << 20}", "--listen", any_port),
                # Every trial has cameras of its own.
                *("--cameras-max", "512"),
                *("--grpc", any_port, "--enrol", any_port, "--socket", str(self.socket)),
            ),
        )
        said = dict(word.split("=", 1) for word in self.edge.ready().split())
        self.has_users = os.geteuid() == 0
        if self.has_users:
            self.socket.parent.chmod(0o755)
            self.socket.chmod(0o666)
        self.link, self.grpc, self.enrolment = said["link"], said["grpc"], said["enrol"]

    def mez(self, *words: str) -> None:
        """Run a command for this site."""
        run_to_end(" ".join(words[:2]), mez(*words, "--keys", str(self.keys)))

    def enrol(self, identity: str, *grants: str) -> Path:
        """Enrol an identity, and return its folder of keys."""
        token = mez("keys", "token", identity, *grants, "--keys", str(self.keys))
        made = subprocess.run(token, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False)
        if made.returncode != 0:
            raise ExperimentError(f"mez keys token: {made.stderr}")
        self._enrolled += 1
        keys = self.folder / f"member{self._enrolled}"
        joined = mez("keys", "enrol", made.stdout.split()[0], "--edge", self.enrolment, "--keys", str(keys))
        run_to_end("mez keys enrol", joined)
        return keys

    @contextmanager
    def publishing(self, camera: str, keys: Path, link: str, fps: float) -> Iterator[mez_client.Publisher]:
        """Publish small images all the time, while the block runs."""
        stop = threading.Event()
        image = np.zeros(PIXELS, np.uint8)
        state = self.folder / f"state-{camera.replace('/', '-')}"
        with mez_client.publisher(
            camera, edge=self.link, keys=keys, link=link, state=state, memory_bytes=16 << 20
        ) as publisher:

            def publish() -> None:
                while not stop.wait(1 / fps):
                    publisher.send(image)

            thread = threading.Thread(target=publish, daemon=True)
            thread.start()
            try:
                yield publisher
            finally:
                stop.set()
                thread.join()


class Watch:
    """Notes when something has ended, and why.

    Args:
        wait: Returns the reason once it has ended.
    """

    def __init__(self, wait: Callable[[], str]) -> None:
        self.ended_s: float | None = None
        self.reason = ""

        def watch() -> None:
            self.reason = wait()
            self.ended_s = time.perf_counter()

        self._thread = threading.Thread(target=watch, daemon=True)
        self._thread.start()

    def since(self, begin_s: float) -> float:
        """Wait for the end, and return how many seconds it came after `begin_s`."""
        self._thread.join(max(0.0, begin_s + ENDED_S_MAX - time.perf_counter()))
        return ENDED_S_MAX if self.ended_s is None else max(0.0, self.ended_s - begin_s)


def _stream(site: Site, keys: Path, stack: ExitStack, *, past: bool) -> Watch:
    """Open a stream of the steady camera; it has begun when this returns."""
    frames = stack.enter_context(
        mez_client.subscribe(
            CAMERA,
            edge=site.grpc,
            keys=keys,
            since="-2s" if past else None,
            deliver="every" if past else None,
            timeout=COMMAND_S_MAX,
        )
    )
    events = iter(frames)
    next(events)

    def wait() -> str:
        try:
            for _ in events:
                pass
        except mez_client.Error as error:
            return str(error)
        return "it ended without a reason"

    return Watch(wait)


def _stream_of(site: Site, user: int, stack: ExitStack, *, past: bool) -> Watch:
    """Open a stream of the steady camera by a program of another user, through the Unix socket."""
    words = [str(user), str(site.socket), CAMERA, "past" if past else "live"]
    program = site.children.start(f"user {user}", [sys.executable, "-c", PROGRAM, *words])
    stack.callback(site.children.stop, program)
    program.ready()
    return Watch(lambda: program.line(2 * ENDED_S_MAX) or "it ended without a word")


def _camera(site: Site, camera: str, keys: Path, link: str, stack: ExitStack) -> Watch:
    """Connect a camera, and watch until its link is gone."""
    publisher = stack.enter_context(site.publishing(camera, keys, link, 10.0))
    publisher.wait_connected(COMMAND_S_MAX)

    def wait() -> str:
        while publisher.connected:
            time.sleep(0.002)
        return "the link is gone"

    return Watch(wait)


def _trial(site: Site, number: int, random: np.random.Generator) -> dict[Kind, tuple[float, str]]:
    """Connect a client of each kind, take its rights away, and return when and why each connection ended."""
    watch = ("--watch", CAMERA)
    read = (*watch, "--read", CAMERA, "--originals", CAMERA)
    ended: dict[Kind, tuple[float, str]] = {}
    with ExitStack() as stack:
        watches: dict[Kind, Watch] = {}
        members: list[tuple[Kind, Path]] = []
        for what in (UNGRANTED, REVOKED):
            word = what.split()[0]
            members.append(((what, LIVE), site.enrol(f"app/live-{word}{number}", *watch)))
            members.append(((what, READING), site.enrol(f"app/read-{word}{number}", *read)))
        here = (LIVE_HERE, READING_HERE) if site.has_users else ()
        users = {kind: USER + 2 * number + place for place, kind in enumerate(here)}
        for kind, user in users.items():
            verbs = "watch,read,originals" if kind == READING_HERE else "watch"
            site.mez("keys", "grant", f"user/{user}", verbs, CAMERA)
        time.sleep(APPLIED_S)
        for kind, user in users.items():
            watches[UNGRANTED, kind] = _stream_of(site, user, stack, past=kind == READING_HERE)
        for kind_of_stream, keys in members:
            past = kind_of_stream[1] == READING
            watches[kind_of_stream] = _stream(site, keys, stack, past=past)
        for kind, link in ((QUIC, "quic"), (TCP, "tcp")):
            camera = f"bench/{link}{number}"
            keys = site.enrol(f"camera/{camera}")
            watches[REVOKED, kind] = _camera(site, camera, keys, link, stack)
        # The edge looks once a second: a random pause, so that the commands run at any moment of this second.
        time.sleep(random.random())
        taken = {UNGRANTED: time.perf_counter()}
        for who in ("live", "read"):
            site.mez("keys", "ungrant", f"app/{who}-grant{number}")
        for user in users.values():
            site.mez("keys", "ungrant", f"user/{user}")
        taken[REVOKED] = time.perf_counter()
        revoked = [f"app/{who}-revoked{number}" for who in ("live", "read")]
        revoked += [f"camera/bench/{link}{number}" for link in ("quic", "tcp")]
        site.mez("keys", "revoke", *revoked, "--because", "the experiment")
        for (what, kind), watched in watches.items():
            ended[what, kind] = (watched.since(taken[what]), watched.reason)
        # Keep the deny list from filling up in a long run.
        site.mez("keys", "unrevoke", *revoked)
    return ended


def _misses_reason(kind: Kind, reason: str) -> bool:
    """Tell whether an application was not told why its stream ended."""
    what, whom = kind
    if whom in (QUIC, TCP):
        return False
    return ("was revoked (the experiment)" if what == REVOKED else "may not") not in reason


def _write_rights(site: Site, grants: int) -> None:
    """Write a file of rights with this many grants for the timed application."""
    cameras = ", ".join(f'"{name}"' for name in [COST, *(f"bench/other{n}" for n in range(1, grants))])
    text = f'default = "deny"\n\n[grants."app/cost"]\nwatch = [{cameras}]\n'
    whole = site.keys / "rights.new"
    whole.write_text(text)
    whole.chmod(0o600)
    whole.rename(site.keys / "rights.toml")


def _cost(run: Run, site: Site, pairs: int) -> dict[int, list[Values]]:
    """Return the milliseconds of frames from `send` to the loop, block by block, by the number of grants."""
    blocks: dict[int, list[Values]] = defaultdict(list)
    sent: dict[tuple[int, int], float] = {}
    delays: list[float] = []
    stop = threading.Event()
    image = np.zeros(PIXELS, np.uint8)
    _write_rights(site, GRANTS[0])
    viewer = site.enrol("app/cost")
    time.sleep(APPLIED_S)
    with (
        mez_client.publisher(
            COST,
            edge=site.link,
            keys=site.enrol(f"camera/{COST}"),
            link="quic",
            state=run.folder / "state-cost",
            memory_bytes=16 << 20,
        ) as publisher,
        mez_client.subscribe(COST, edge=site.grpc, keys=viewer, timeout=COMMAND_S_MAX) as frames,
    ):

        def publish() -> None:
            while not stop.wait(1 / FPS):
                begin = time.perf_counter()
                frame = publisher.send(image)
                if frame is not None:
                    sent[frame.epoch, frame.sequence] = begin

        def take() -> None:
            for frame in frames:
                now = time.perf_counter()
                begin = sent.pop((frame.id.epoch, frame.id.sequence), None)
                if begin is not None:
                    delays.append((now - begin) * 1e3)
                if stop.is_set():
                    return

        threads = [threading.Thread(target=work, daemon=True) for work in (publish, take)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(pairs):
                for grants in in_turn(GRANTS, turn):
                    _write_rights(site, grants)
                    time.sleep(APPLIED_S)
                    delays.clear()
                    time.sleep(BLOCK_S)
                    blocks[grants].append(np.array(delays))
                    run.step(f"frames with {grants} grants")
        finally:
            stop.set()
            threads[0].join()
    if any(not block.size for of in blocks.values() for block in of):
        raise ExperimentError("no frame arrived while frames were timed")
    return blocks


def _checks(run: Run) -> dict[tuple[int, str], list[Values]]:
    """Return the microseconds of one check, by the number of grants and the outcome."""
    rounds, checks = ("5", "5000") if run.quick else ("30", "50000")
    grants = ",".join(map(str, GRANTS))
    command = mez("measure", "rights", "--grants", grants, "--rounds", rounds, "--checks", checks)
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False)
    if done.returncode != 0:
        raise ExperimentError(f"mez measure rights: {done.stderr}")
    took: dict[tuple[int, str], list[Values]] = defaultdict(list)
    for line in done.stdout.splitlines():
        said = json.loads(line)
        took[said["grants"], said["outcome"]].append(np.array([said["ns"] / 1e3]))
    return took


def _run(run: Run) -> Outcome:
    trials, pairs = (3, 2) if run.quick else (100, 30)
    run.step("starting", done=0)
    site = Site(run)
    run.expect(trials + 2 * pairs + 1)
    ended: dict[Kind, list[float]] = defaultdict(list)
    unsaid: list[str] = []
    random = np.random.default_rng(SEED)
    with site.publishing(CAMERA, site.enrol(f"camera/{CAMERA}"), "quic", FPS) as steady:
        steady.wait_connected(COMMAND_S_MAX)
        for number in range(trials):
            for kind, (seconds, reason) in _trial(site, number, random).items():
                ended[kind].append(seconds)
                if _misses_reason(kind, reason):
                    unsaid.append(f"{kind[1]}, {kind[0]}: {reason}")
            run.step("revocation")
    blocks = _cost(run, site, pairs)
    checks = _checks(run)
    run.step("checks")
    outcome = _outcome(ended, blocks, checks)
    outcome.metrics["ends_without_reason"] = Interval.exactly(len(unsaid))
    outcome.notes += [f"without the reason: {text}" for text in unsaid[:5]]
    outcome.parameters = {
        "trials": trials,
        "seed": SEED,
        "grants": GRANTS,
        "pairs_of_blocks": pairs,
        "frames_per_second": FPS,
        "seconds_of_a_block": BLOCK_S,
    }
    return outcome


def _outcome(
    ended: Mapping[Kind, Sequence[float]],
    blocks: Mapping[int, list[Values]],
    checks: Mapping[tuple[int, str], list[Values]],
) -> Outcome:
    """Make a result from the measurements."""
    outcome = Outcome()
    for (what, kind), seconds in ended.items():
        taken = np.array(seconds)
        outcome.rows.append(
            {
                "what": what,
                "of": kind,
                "trials": len(taken),
                "s_p50": float(np.median(taken)),
                "s_max": float(taken.max()),
            }
        )
    few, many = GRANTS
    worst = max(checks, key=lambda arm: median(np.concatenate(checks[arm])))
    outcome.metrics = {
        "revoked_s_max": Interval.exactly(max(max(seconds) for seconds in ended.values())),
        "revoked_s_p50": interval([np.array(seconds) for seconds in ended.values()], median),
        "grants_cost_ratio": ratio_interval(blocks[many], blocks[few], median),
        "frame_ms_p50": interval(blocks[few], median),
        "check_us": interval(checks[worst], median),
    }
    outcome.targets = [
        Target("revoked_s_max", "<=", 5.0),
        Target("grants_cost_ratio", "<=", 1.02, full_only=True),
        Target("check_us", "<=", 2.0),
        Target("ends_without_reason", "==", 0),
    ]
    outcome.tables = [_table(outcome.rows)]
    outcome.plot = lambda drawing: _plot(drawing, ended)
    outcome.notes = [
        "revoked_s_max is over all kinds: revocations, and grants that are taken back. The time runs from "
        "the start of the command until the program has the reason, or until the camera's link is gone",
        "grants_cost_ratio: latency of frames from send() to the reader's loop, over QUIC and gRPC; the file "
        "of rights changes between 1 and 1,000 grants of this application while the stream runs",
        "check_us: one check of the rights and of a full deny list, in the slowest arm: "
        f"{worst[0]} grants, {worst[1]}",
    ]
    if not any(kind in (LIVE_HERE, READING_HERE) for _, kind in ended):
        outcome.notes.append(
            "the Unix socket is left out: this user has all rights there, and only root can run programs as "
            "other users"
        )
    return outcome


def _table(rows: Sequence[Mapping[str, Cell]]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("what", "of", "trials", "p50 s", "max s"):
        table.add_column(column, no_wrap=True, justify="left" if column in ("what", "of") else "right")
    for row in rows:
        numbers = [figure(float(row[name] or 0.0)) for name in ("s_p50", "s_max")]
        table.add_row(str(row["what"]), str(row["of"]), str(row["trials"]), *numbers)
    return table


def _plot(drawing: Figure, ended: Mapping[Kind, Sequence[float]]) -> None:
    axes = drawing.subplots()
    for (what, kind), seconds in ended.items():
        ordered = np.sort(np.array(seconds))
        axes.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered), label=f"{kind}: {what}")
    axes.set_xlabel("seconds after the command was started")
    axes.set_ylabel("share of trials that have ended")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize="small")


RIGHTS: Final = Experiment(
    name="rights",
    summary="grants taken back, and revocation: how soon streams end, and the cost of checks",
    needs="nothing but the build",
    seconds_quick=40,
    seconds_full=720,
    run=_run,
)
