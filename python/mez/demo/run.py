"""Runs the demo: starts the brokers, watches, stops them and reports."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.live import Live
from rich.progress import Progress

import mez
from mez import _checkout
from mez._interrupt import EndedEarlyError, Interrupt
from mez._processes import Child, ProcessError, free_port, mez_command, run_to_end
from mez.apps.boxes import Box
from mez.demo.account import Ledger
from mez.demo.accuracy import Accuracy, Originals, Samples
from mez.demo.application import Application, Asked, Watched
from mez.demo.channel import Channel
from mez.demo.contract import Diary, Shares, account
from mez.demo.detector import Detector, Finding
from mez.demo.logs import log_to
from mez.demo.options import APP, CAMERA_LOG_MIB, EDGE_LOG_MIB, LATENCY_MS, Options, parse
from mez.demo.pictures import Gallery
from mez.demo.report import Process, Results, ScenarioResults
from mez.demo.supervise import Supervisor
from mez.demo.table import ContractRow, ProcessRow, Snapshot, line, render
from mez.demo.tell import tell
from mez.demo.traffic import TrafficBook
from mez.demo.usage import UsageMeter

REFRESH_S: Final = 0.25
LINE_EVERY_S: Final = 3.0
ASK_EVERY_S: Final = 0.25
"""How often the edge is asked about its cameras."""

WINDOW_S: Final = 5.0
"""The time over which the table computes rates and ages."""

FIRST_FRAMES_SECONDS_MAX: Final = 10.0
"""How long to wait for a first frame of every camera before the clock starts anyway."""

RESUME_SECONDS_MAX: Final = 10.0
"""How long the demo waits after its end for frames of a broker that was restarted."""

PLAIN_COLUMNS: Final = 120
"""Width of the output if it is not a terminal."""

THIS_APPLICATION: Final = "this application"


def run(arguments: Sequence[str]) -> int:
    """Run the demo; see `mez.demo.main`."""
    options = parse(arguments)
    console = Console(highlight=False)
    if not console.is_terminal:
        # A file or a pipe has no width.
        console = Console(highlight=False, width=PLAIN_COLUMNS)
    with contextlib.ExitStack() as at_end:
        interrupt = at_end.enter_context(Interrupt())
        work = Path(
            tempfile.mkdtemp(prefix="mez-demo-")
            if options.keep
            else at_end.enter_context(
                tempfile.TemporaryDirectory(prefix="mez-demo-", ignore_cleanup_errors=True)
            )
        )
        at_end.enter_context(log_to(work / "application.log"))
        try:
            demo = Demo(options, work, console, interrupt)
            at_end.callback(demo.kill)
            results = demo.run()
            beside: dict[str, Results] = {}
            for policy in options.beside:
                if interrupt():
                    break
                console.print(f"Repeating the run with the policy {policy}:")
                folder = work / policy
                folder.mkdir()
                other = Demo(replace(options, policy=policy), folder, console, interrupt)
                at_end.callback(other.kill)
                beside[policy] = other.run()
            code = tell(console, demo.options, demo.gallery, results, beside)
        except (ProcessError, mez.Error) as error:
            console.print(f"mez demo: {error}", style="bold red", markup=False, soft_wrap=True)
            code = 1
        except EndedEarlyError:
            console.print("mez demo: ended before frames came")
            code = 1
        except KeyboardInterrupt:
            console.print("mez demo: stopped at once", style="bold red")
            code = 1
        if options.keep:
            console.print(f"Keys and logs are in {work}", markup=False)
        return code


class Demo:
    """One run.

    Args:
        options: What was asked for.
        work: An empty folder for keys, logs and sockets.
        console: Where people read.
        interrupted: Tells whether to end early.

    Raises:
        ProcessError: There is no such scenario.
    """

    def __init__(
        self, options: Options, work: Path, console: Console, interrupted: Callable[[], bool]
    ) -> None:
        port = free_port()
        self._channel = (
            None
            if options.scenario is None
            else Channel(options.scenario, f"127.0.0.1:{port}", work / "channel.log")
        )
        links = {} if self._channel is None else {link.camera: link for link in self._channel.scenario.links}
        if self._channel is not None:
            options = options.of(self._channel.scenario)
        self.options = options
        self.console = console
        self.gallery = Gallery(time.monotonic(), options.seconds)
        self._work = work
        self._interrupted = interrupted
        self._live = console.is_terminal and not options.headless
        self._keys = work / "keys"
        self._socket = work / "edge.sock"
        self._web_port = free_port()
        self._edge = Child("edge", self._edge_command(port), work / "edge.log")
        self._cameras = {
            name: Child(
                name,
                self._camera_command(
                    name,
                    links[name].address if name in links else f"127.0.0.1:{port}",
                    links[name].fps if name in links else options.fps,
                ),
                work / f"{name.replace('/', '-')}.log",
            )
            for name in options.camera_names
        }
        self._diary, self._samples, self._shares = Diary(), Samples(), Shares()
        self._traffic, self._asks_at_s = TrafficBook(), 0.0
        self._originals: list[Originals] = []
        self._brokers = [self._edge, *self._cameras.values()]
        self._supervisor = Supervisor(self._edge, self._cameras)
        self._ledger = Ledger(options.camera_names)
        self._detector = Detector(options.app, lambda finding: self.gallery.keep(finding))
        self._meters = {name: UsageMeter() for name in ("edge", *self._cameras, THIS_APPLICATION)}
        self._application: Application | None = None
        self._stopped_in_order: dict[str, bool] = {}
        self._flowing = False

    def run(self) -> Results:
        """Start everything, let frames flow for as long as was asked for, and stop everything.

        Raises:
            ProcessError: A broker did not start.
            mez.Error: The application could not subscribe, or the detector does not work.
            EndedEarlyError: It was interrupted before the first frame.
        """
        if self.options.app.name != APP:
            with self._step(f"trying {self.options.app.name} on the first frame of the video"):
                self._try_detector()
        with self._step("making the keys of a site for this demo"):
            run_to_end(
                "mez keys init", mez_command("keys", "init", "--site", "demo", "--keys", str(self._keys))
            )
        with self._step("starting the edge broker"):
            self._edge.start()
            self._edge.await_ready(self._interrupted)
        self._tell_page()
        application = self._application = Application(
            "dock/*" if self._channel is None else self._channel.scenario.cameras,
            f"unix://{self._socket}",
            self._ledger,
            self._detector,
            self._supervisor.frame_arrived,
            self._asked(),
            None if self._channel is None else Watched(self._diary, self._samples),
        )
        self._detector.start()
        application.start()
        with self._step(f"starting {len(self._cameras)} camera brokers"):
            for camera in self._cameras.values():
                camera.start()
            for camera in self._cameras.values():
                camera.await_ready(self._interrupted)
        with self._step("waiting for the first frame of every camera"):
            self._await_first_frames()
        if self._channel is not None:
            self._originals = [
                Originals(f"unix://{self._camera_socket(name)}", name, self._samples)
                for name in self._cameras
            ]
            self._channel.begin()
        self._flowing = True
        begins_s = time.monotonic()
        self.gallery = Gallery(begins_s, self.options.seconds)
        self._ask_for_cameras()
        self._traffic.begin()
        self._watch(application, begins_s)
        self._asks_at_s = 0.0
        self._ask_for_cameras()
        elapsed_s = time.monotonic() - begins_s
        interrupted = self._interrupted()
        late_ms_max = None if self._channel is None else self._channel.late_ms_max()
        with self._step("stopping"):
            self._detector.stop()
            application.stop()
            for originals in self._originals:
                originals.stop()
            self._sample()
            self._stop_brokers()
        return Results(
            scenario=None
            if self._channel is None or late_ms_max is None
            else self._scenario_results(self._channel, begins_s, elapsed_s, late_ms_max),
            options=self.options,
            elapsed_s=elapsed_s,
            interrupted=interrupted,
            totals=self._ledger.totals(),
            detector=self._detector.totals(),
            replies=application.replies(),
            traffic=self._traffic.traffic(),
            asked=self._asked(),
            states=application.states(),
            edge=self._process(self._edge),
            cameras=[self._process(camera) for camera in self._cameras.values()],
            incidents=self._supervisor.incidents,
            failures=[
                *(f"The application failed: {failure!r}." for failure in [application.failure] if failure),
                *(f"The detector failed: {failure}" for failure in [self._detector.failure] if failure),
                *(f"{name} kept dying, and was not restarted." for name in self._supervisor.given_up),
            ],
        )

    def _tell_page(self) -> None:
        """Print a link to the edge's page, which signs one browser in."""
        where = f"unix://{self._socket}"
        link = run_to_end("mez edge open", mez_command("edge", "open", "--edge", where)).strip()
        self.console.print("  open in a browser (valid once, for five minutes):", style="dim")
        self.console.print(f"  {link}", markup=False, soft_wrap=True)

    def _try_detector(self) -> None:
        """Try the user's function before anything runs. Errors in the video are reported by the cameras."""
        read, image = cv2.VideoCapture(str(self.options.video)).read()
        if read:
            what = f"the first frame of {self.options.video.name}"
            self.options.app.strong(np.asarray(image, np.uint8), what)

    def kill(self) -> None:
        """Kill all processes that still run. Does nothing after a run that ended normally."""
        for broker in self._brokers:
            broker.stop(seconds_max=0.0)
            broker.close()
        if self._channel is not None:
            self._channel.stop()

    def _asked(self) -> Asked:
        """Return the contract of the scenario. Without one: the default latency bound, and no floor."""
        profile = self.options.profile
        if self._channel is not None:
            scenario = self._channel.scenario
            return Asked(scenario.latency_ms, scenario.accuracy, profile)
        return Asked(latency_ms=LATENCY_MS, profile=profile)

    def _scenario_results(
        self, channel: Channel, begins_s: float, elapsed_s: float, late_ms_max: float
    ) -> ScenarioResults:
        scenario, frames = channel.scenario, self._diary.frames(begins_s)
        worse = [begins_s + at_s for at_s in scenario.worse_at_s() if at_s < elapsed_s]
        return ScenarioResults(
            scenario=scenario,
            account=account(frames, scenario.latency_ms, worse),
            accuracy=self._score(),
            late_ms_max=late_ms_max,
            frames=frames,
            begins_s=begins_s,
            shares=self._shares.least(),
        )

    def _score(self) -> Accuracy | None:
        """Score the frames that were kept, with a progress bar."""
        pairs = self._samples.pairs(self.options.score)
        if not pairs:
            return None
        scoring = _checkout.experiments("mez_bench.scenario")
        if scoring is None:
            self.console.print(
                "  the accuracy is not scored, because that needs a checkout of Mez",
                style="dim",
                markup=False,
            )
            return None
        began = time.monotonic()
        with Progress(console=self.console, transient=True, disable=not self._live) as progress:
            bar = progress.add_task("scoring the accuracy", total=len(pairs))

            def seen(frame: mez.Frame, boxes: Sequence[Box]) -> None:
                progress.advance(bar)
                self.gallery.keep(
                    Finding(
                        camera=frame.camera,
                        epoch=frame.epoch,
                        sequence=frame.sequence,
                        image=_at_size(frame, boxes),
                        boxes=tuple(boxes),
                        age_ms=frame.age_ms,
                        detector_ms=0.0,
                        at_s=began,
                    )
                )

            accuracy: Accuracy = scoring.score(self.options.app, pairs, seen, self._interrupted)
        self.console.print(
            f"  scoring the accuracy: {time.monotonic() - began:.1f} s", style="dim", markup=False
        )
        return accuracy

    def _edge_command(self, port: int) -> list[str]:
        # Without the settings of the host's own brokers.
        words = ["edge", "--config", "off", "--keys", str(self._keys), "--listen", f"127.0.0.1:{port}"]
        words += ["--grpc", "off", "--enrol", "off", "--socket", str(self._socket)]
        # The same port after a restart, so that an open page connects again.
        words += ["--web", f"127.0.0.1:{self._web_port}"]
        # Otherwise the host's own edge would list the demo's cameras.
        words += ["--state", str(self._work / "state")]
        if self._channel is not None:
            for channel in self._channel.scenario.edge_channels:
                words += ["--channel", channel]
        return mez_command(*words, "--memory-bytes", f"{EDGE_LOG_MIB}MiB", "--log-format", "json")

    def _camera_socket(self, name: str) -> Path:
        return self._work / f"{name.replace('/', '-')}.sock"

    def _camera_command(self, name: str, edge: str, fps: float) -> list[str]:
        words = ["camera", name, "--config", "off", "--keys", str(self._keys), "--edge", edge, "--loop"]
        words += ["--source", str(self.options.video), "--fps", f"{fps:g}", "--policy", self.options.policy]
        words += [
            "--state",
            str(self._work / "state"),
            "--memory-bytes",
            f"{CAMERA_LOG_MIB}MiB",
            "--socket",
            "off" if self._channel is None else str(self._camera_socket(name)),
        ]
        return mez_command(*words, "--log-format", "json")

    @contextlib.contextmanager
    def _step(self, what: str) -> Iterator[None]:
        """Show a spinner during a step, then its time. Raises `EndedEarlyError` after it if interrupted."""
        began = time.monotonic()
        with self.console.status(f"{what} …") if self._live else contextlib.nullcontext():
            yield
        if self._interrupted() and not self._flowing:
            raise EndedEarlyError
        self.console.print(f"  {what}: {time.monotonic() - began:.1f} s", style="dim", markup=False)

    def _await_first_frames(self) -> None:
        deadline = time.monotonic() + FIRST_FRAMES_SECONDS_MAX
        while not self._interrupted() and time.monotonic() < deadline:
            if all(camera.delivered for camera in self._ledger.totals().cameras.values()):
                return
            self._supervisor.watch(0.02)

    def _watch(self, application: Application, begins_s: float) -> None:
        """Show what happens until the time is over."""
        every_s = REFRESH_S if self._live else LINE_EVERY_S
        with (
            Live(console=self.console, auto_refresh=False, transient=True)
            if self._live
            else _nothing() as live
        ):
            next_s = begins_s
            while self._goes_on(application, begins_s):
                self._supervisor.watch(min(REFRESH_S, max(0.0, next_s - time.monotonic())))
                self._ask_for_cameras()
                if time.monotonic() < next_s:
                    continue
                next_s += every_s
                snapshot = self._snapshot(begins_s)
                if live is not None:
                    live.update(render(snapshot, self.console.width), refresh=True)
                else:
                    self.console.print(line(snapshot), markup=False, soft_wrap=True)

    def _ask_for_cameras(self) -> None:
        """Ask the edge about its cameras, if that is due. It may be down."""
        if time.monotonic() < self._asks_at_s:
            return
        self._asks_at_s = time.monotonic() + ASK_EVERY_S
        with contextlib.suppress(mez.Error):
            cameras = mez.cameras(edge=f"unix://{self._socket}", connect_timeout=0)
            self._shares.take(cameras)
            self._traffic.take(cameras)

    def _goes_on(self, application: Application, begins_s: float) -> bool:
        if self._interrupted() or application.failure is not None or self._detector.failure is not None:
            return False
        now = time.monotonic()
        if now < begins_s + self.options.seconds:
            return True
        return any(
            incident.resumed_at_s is None and now < incident.exit.at_s + RESUME_SECONDS_MAX
            for incident in self._supervisor.incidents
        )

    def _snapshot(self, begins_s: float) -> Snapshot:
        now_s = time.monotonic()
        totals = self._ledger.totals()
        return Snapshot(
            elapsed_s=now_s - begins_s,
            seconds=self.options.seconds,
            fps=self.options.fps,
            totals=totals,
            now={name: self._ledger.now(name, WINDOW_S, now_s) for name in totals.cameras},
            detector=self._detector.totals(),
            processes=self._sample(),
            incidents=self._supervisor.incidents,
            contracts=self._contracts(now_s - begins_s),
            bound_ms=None if self._channel is None else self._channel.scenario.latency_ms,
        )

    def _contracts(self, at_s: float) -> dict[str, ContractRow]:
        """The rate of each link, and the state of its contract."""
        rows: dict[str, ContractRow] = {}
        if self._channel is None:
            return rows
        for link in self._channel.scenario.links:
            latest = self._diary.latest(link.camera)
            rows[link.camera] = ContractRow(
                megabits=link.megabits_at(at_s),
                shared=link.camera in self._channel.scenario.shared,
                share_bytes=self._shares.latest(link.camera),
                rung=latest.rung if latest else "",
                state=latest.state if latest else "",
                reason=latest.reason if latest else "",
            )
        return rows

    def _sample(self) -> list[ProcessRow]:
        rows = [
            ProcessRow(broker.name, broker.pid, self._meters[broker.name].sample(broker.pid), _state(broker))
            for broker in self._brokers
        ]
        pid = os.getpid()
        rows.append(
            ProcessRow(
                THIS_APPLICATION,
                pid,
                self._meters[THIS_APPLICATION].sample(pid),
                "taking frames, running the detector",
            )
        )
        return rows

    def _stop_brokers(self) -> None:
        """Stop the cameras first: without the edge they would try to connect again."""
        for camera in self._cameras.values():
            camera.ask_to_stop()
        for broker in (*self._cameras.values(), self._edge):
            self._stopped_in_order[broker.name] = broker.stop()

    def _process(self, broker: Child) -> Process:
        meter = self._meters[broker.name]
        return Process(
            name=broker.name,
            starts=self._supervisor.starts(broker.name),
            rss_mb_max=meter.rss_mb_max,
            cpu_seconds=meter.cpu_seconds,
            stopped=self._stopped_in_order[broker.name],
        )


def _state(broker: Child) -> str:
    if broker.exited is not None:
        return f"down: {broker.exited}"
    return "serving" if broker.ready else "starting"


def _at_size(frame: mez.Frame, boxes: Sequence[Box]) -> npt.NDArray[np.uint8]:
    """Return a frame's pixels, enlarged if its boxes, in pixels of the published frame, need it."""
    image = frame.image
    right = max((box.x + box.width for box in boxes), default=0.0)
    factor = max(1.0, right / image.shape[1])
    if factor == 1.0:
        return image
    return np.asarray(cv2.resize(image, None, fx=factor, fy=factor), dtype=np.uint8)


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield None
