"""Plays a scenario between real brokers: an edge, a camera broker for each link, and applications."""

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import mez as mez_client
from mez.demo.accuracy import Originals, Samples
from mez.demo.channel import Channel, Scenario
from mez_bench.children import Children
from mez_bench.errors import ExperimentError
from mez_bench.reading import Reading
from mez_bench.run import Place, Run
from mez_bench.systems.mez import Brokers

LOG_BYTES: Final = 64 << 20
PATTERN: Final = "bench/*"

SETTLE_S: Final = 2.0
"""Frames of the first seconds do not count in figures of a link: the policy does not know the link yet."""

KEPT_MAX: Final = 4_000
"""The most frames that are kept at each end for scoring."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a subscription asks for."""

    name: str
    latency_ms: float
    accuracy: float
    profile: Path
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Play:
    """A play: links, cameras and subscriptions.

    Attributes:
        name: Its name in messages and file names.
        scenario: The file of its links. Each link gets a camera of its own.
        asked: The subscriptions, to all cameras.
        video: The video that the cameras publish in a loop.
        scored_one_in: One in this many frames is kept at both ends for scoring; `None`: none.
    """

    name: str
    scenario: Path
    asked: Sequence[Asked]
    video: Path
    scored_one_in: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A frame that an application got.

    Attributes:
        key: Camera, epoch and sequence.
        at_s: When it arrived, in the scenario's time.
        age_ms: Its age on arrival.
        state: State of the contract.
        infeasible: Whether the frame itself is marked as infeasible.
        expected: Its accuracy by the profile; `None` if unknown.
        rung: Its rung.
        link_bytes: Its bytes on the link.
    """

    key: tuple[str, int, int]
    at_s: float
    age_ms: float
    state: str
    infeasible: bool
    expected: float | None
    rung: str
    link_bytes: int | None


@dataclass(slots=True)
class Application(Reading):
    """A subscription that is read on a thread of its own."""

    edge: str
    asked: Asked
    samples: Samples | None = None
    frames: list[Taken] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    began_s: float | None = None

    def on_time(self) -> int:
        """Count the frames within the bound, without those of the first `SETTLE_S`."""
        return sum(taken.age_ms <= self.asked.latency_ms for taken in self.settled())

    def settled(self) -> list[Taken]:
        """Return the frames without those of the first `SETTLE_S`."""
        return [taken for taken in self.frames if taken.at_s >= SETTLE_S]

    def _on_event(self, event: mez_client.Event) -> None:
        if event.kind == "contract" and event.state == "infeasible":
            self.reasons.append(event.reason or "")

    def _subscribe(self) -> mez_client.Subscription:
        asked = self.asked
        return mez_client.subscribe(
            PATTERN,
            edge=self.edge,
            latency_ms=asked.latency_ms,
            accuracy=asked.accuracy,
            priority=asked.priority,
            profile=asked.profile,
            on_event=self._on_event,
        )

    def _take(self, frame: mez_client.Frame) -> None:
        if self.began_s is None or frame.age_ms is None:
            return
        at_s = time.monotonic() - self.began_s
        key = (frame.camera, frame.epoch, frame.sequence)
        self.frames.append(
            Taken(
                key=key,
                at_s=at_s,
                age_ms=frame.age_ms,
                state=frame.contract.state,
                infeasible=frame.infeasible,
                expected=frame.expected_accuracy,
                rung=frame.rung,
                link_bytes=frame.link_bytes,
            )
        )
        if self.samples is not None:
            self.samples.take_delivered(frame, at_s)


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a play.

    Attributes:
        applications: The subscriptions, in the order of `Play.asked`.
        scenario: The scenario that was played.
        samples: Frames that were kept at both ends.
        late_ms_max: Largest delay that the emulator of the links itself caused, on a busy machine.
    """

    applications: Sequence[Application]
    scenario: Scenario
    samples: Samples | None
    late_ms_max: float


def played(run: Run, plays: Sequence[Play], at_once: int = 1) -> Iterator[Played]:
    """Run the plays, and yield their results in order.

    Args:
        run: The run, which shows the progress.
        plays: The plays.
        at_once: How many run at a time. More than one is for quick runs, whose figures are not judged.
    """
    stopping = threading.Event()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for play, done in zip(
                plays, pool.map(lambda one: _play(run.folder, one, stopping), plays), strict=True
            ):
                run.step(play.name)
                yield done
        except BaseException:
            stopping.set()
            pool.shutdown(cancel_futures=True)
            raise


def _play(root: Path, play: Play, stopping: threading.Event) -> Played:
    folder = Path(tempfile.mkdtemp(prefix=f"{play.name}-", dir=root))
    samples = None if play.scored_one_in is None else Samples(play.scored_one_in, KEPT_MAX)
    with Children(folder) as children:
        brokers = Brokers(Place(folder, children), LOG_BYTES)
        channel = Channel(str(play.scenario), brokers.link_address, folder / "channel.log")
        applications = [Application(brokers.socket, one, samples) for one in play.asked]
        originals: list[Originals] = []
        try:
            for number, link in enumerate(channel.scenario.links):
                camera = f"bench/cam{number}"
                socket = None if samples is None else folder / f"camera{number}.sock"
                brokers.dial_with(
                    link.address,
                    str(play.video),
                    name=f"camera {number}",
                    camera=camera,
                    fps=link.fps,
                    socket=socket,
                )
                if samples is not None:
                    originals.append(Originals(f"unix://{socket}", camera, samples))
            for application in applications:
                application.start()
            time.sleep(1.0)
            began_s = time.monotonic()
            channel.begin()
            for application in applications:
                application.began_s = began_s
            _wait(play, applications, began_s + channel.scenario.seconds, stopping)
            late_ms_max = channel.late_ms_max()
        finally:
            for application in applications:
                application.stop()
            for one in originals:
                one.stop()
            channel.stop()
    return Played(applications, channel.scenario, samples, late_ms_max)


def _wait(play: Play, applications: Sequence[Application], until_s: float, stopping: threading.Event) -> None:
    while time.monotonic() < until_s:
        if stopping.wait(0.1):
            raise ExperimentError(f"{play.name}: the experiment was stopped")
        for application in applications:
            if application.failure is not None:
                failure = application.failure
                raise ExperimentError(f"{play.name}: a subscription ended: {failure}") from failure
