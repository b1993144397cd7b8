"""What the test of alerts needs: a site of edges under a real Prometheus, and faults that can be planted."""

import contextlib
import json
import os
import resource
import secrets
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import mez
from mez import _native
from mez._processes import LEASH, free_port
from tests.edges import EdgeProcess
from tests.support import camera_broker, enrolled, picture, profile_of
from tests.test_sources import until

MONITORING = Path(__file__).parents[2] / "docs/monitoring"
EVALUATED = "1s"
"""How often the test scrapes and evaluates. What is shipped says 5 s. The rules are as shipped."""

EDGES = ("hall", "killed", "clock", "full", "slow", "late")
"""Each has a camera `EDGE/cam1`, a contract that is kept, and a fault; `hall` and `late` have several."""

FAULTY = ("hall/gone", "hall/lost", "hall/tight")
"""More cameras of `hall`, each for a fault."""

DRIVE = "64m"
SMALL_MEMORY_BYTES = 8 << 20
"""Of the edge whose disk is full for a moment: frames leave it within seconds."""

CLOCK_SET_BACK = "-30d"
FILES_SPARE = 0.12
"""How many more files that edge may open, as a share of those that it has open."""

FRAMES_PER_SECOND = 8.0

Alert = tuple[str, str, str]
"""The rule, the edge, and the camera, or nothing."""

EXPECTED: frozenset[Alert] = frozenset(
    {
        ("MezEdgeDown", "killed", ""),
        ("MezEdgeNotReady", "clock", ""),
        ("MezCameraAbsent", "hall", "hall/gone"),
        ("MezSourceLost", "hall", "hall/lost"),
        ("MezContractNotKept", "hall", "hall/tight"),
        ("MezStoreDegraded", "full", "full/cam1"),
        ("MezFramesLostOnDisk", "slow", "slow/cam1"),
        ("MezCertificateEnds", "late", ""),
        ("MezCameraCertificateEnds", "late", "late/cam1"),
        ("MezDeadLetters", "hall", ""),
        ("MezFileDescriptors", "late", ""),
    }
)
FROM_THE_START: frozenset[Alert] = frozenset(
    {("MezCertificateEnds", "late", ""), ("MezCameraCertificateEnds", "late", "late/cam1")}
)
"""Edges and cameras get their certificates before they start."""


def missing() -> str | None:
    """What the test lacks on this machine, as a sentence."""
    lacking = [program for program in ("prometheus", "promtool", "faketime") if not shutil.which(program)]
    return f"there is no {', '.join(lacking)}; `tools/setup --tests` installs it" if lacking else None


def noise() -> NDArray[np.uint8]:
    """A picture of which JPEG makes half a megabyte."""
    return np.random.default_rng(5).integers(0, 255, (600, 800, 3), np.uint8)


class Prometheus:
    """Debian's Prometheus, with the configuration and the rules that are shipped.

    Args:
        folder: For its data.
        targets: Where edges are scraped, by their names.
        token: The file with the scrape token.
        authority: The site's authority.
    """

    def __init__(self, folder: Path, targets: Mapping[str, str], token: Path, authority: Path) -> None:
        folder.mkdir()
        self._names = {address: name for name, address in targets.items()}
        config = (MONITORING / "prometheus.yml").read_text()
        for shipped, ours in (
            ("scrape_interval: 5s", f"scrape_interval: {EVALUATED}"),
            ("evaluation_interval: 5s", f"evaluation_interval: {EVALUATED}"),
            ("- alerts.yml", f"- {MONITORING / 'alerts.yml'}"),
            ("/etc/prometheus/mez.token", str(token)),
            ("/etc/prometheus/mez-authority.pem", str(authority)),
            ('["edge.example:7653", "edge2.example:7653"]', json.dumps(list(targets.values()))),
        ):
            assert shipped in config, f"prometheus.yml has no {shipped}"
            config = config.replace(shipped, ours)
        (folder / "prometheus.yml").write_text(config)
        self._address = f"127.0.0.1:{free_port()}"
        words = [shutil.which("prometheus") or "prometheus", "--log.level=error"]
        words += [f"--config.file={folder / 'prometheus.yml'}"]
        words += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={self._address}"]
        leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())]
        self._process = subprocess.Popen([*leash, *words])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def value(self, query: str) -> float | None:
        """What a query gives; `None`: nothing, or Prometheus does not serve yet."""
        told = self._ask(f"query?{urllib.parse.urlencode({'query': query})}")
        result = told["result"] if told else []
        return float(result[0]["value"][1]) if result else None

    def firing(self) -> frozenset[Alert]:
        """The alerts that fire."""
        told = self._ask("alerts")
        alerts = [alert["labels"] for alert in told["alerts"] if alert["state"] == "firing"] if told else []
        return frozenset(
            (labels["alertname"], self._names[labels["instance"]], labels.get("camera", ""))
            for labels in alerts
        )

    def _ask(self, what: str) -> dict[str, Any] | None:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{what}", timeout=30) as answer:
                told: dict[str, Any] = json.loads(answer.read())["data"]
            return told
        return None


class Site:
    """Six edges of a site with their cameras and applications. All is well until faults are planted.

    Args:
        folder: Where all of it lies.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._over = threading.Event()
        self._sends_much = threading.Event()
        """The edge whose disk is full for a moment gets more than its memory holds."""
        self._open = ExitStack()
        self._threads: list[threading.Thread] = []
        self._clock = folder / "clock.txt"
        self.token = folder / "scrape.token"
        self.edges: dict[str, EdgeProcess] = {}
        self._cameras: dict[str, mez.Publisher] = {}

    def __enter__(self) -> Self:
        """Start edges, cameras and applications."""
        try:
            self.token.touch(mode=0o600)
            self.token.write_text(secrets.token_hex(32))
            self._clock.write_text("+0")
            for name in EDGES:
                self.edges[name] = self._open.enter_context(self._edge(name))
            for name in EDGES:
                self._camera(f"{name}/cam1", name)
            for name in FAULTY[1:]:
                self._camera(name, "hall")
            hall, socket = self.edges["hall"], self._folder / "gone.sock"
            self._killed = self._open.enter_context(camera_broker("hall/gone", hall, socket))
            self._cameras["hall/gone"] = self._open.enter_context(
                mez.publisher("hall/gone", broker=f"unix://{socket}")
            )
            for camera in self._cameras.values():
                camera.wait_connected(timeout=60)
            self._begin(self._publish)
            for name in EDGES:
                self._read("*/*", name, latency_ms=10_000, application="counter")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all of it."""
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=30)
        self._open.close()

    @property
    def cameras(self) -> int:
        """How many there are."""
        return len(self._cameras)

    @property
    def keys(self) -> Path:
        """Of the site."""
        return self.edges["hall"].keys

    def targets(self) -> dict[str, str]:
        """Where each edge is scraped."""
        return {name: edge.said["web"] for name, edge in self.edges.items()}

    def plant(self) -> None:
        """Plant all faults but that of `FROM_THE_START`."""
        self.edges["killed"].kill()
        self._clock.write_text(CLOCK_SET_BACK)
        del self._cameras["hall/gone"]
        self._killed.kill()
        self._cameras.pop("hall/lost").lost("the cable is out")
        tight = profile_of(64, 48, small=0.93)
        strict = {"latency_ms": 10_000, "accuracy": 0.95, "profile": tight}
        self._read("hall/tight", "hall", application="plates", **strict)
        self._fill("full")
        self._give_up_a_record()
        self._take_files("late")
        self._fill_until_frames_are_lost("slow")

    def _edge(self, name: str) -> EdgeProcess:
        folder = self._folder / name
        folder.mkdir()
        words = ["--web", "127.0.0.1:0", "--scrape-token-file", str(self.token)]
        drive, environment = None, {}
        keys = self.keys if self.edges else None
        if name in ("full", "slow"):
            drive = DRIVE
        if name == "slow":
            words += ["--memory-bytes", str(SMALL_MEMORY_BYTES)]
        if name == "clock":
            environment = clock_of(self._clock)
        if name == "late":
            # Without a signer nobody renews it.
            keys = self._short_lived("edge/late", folder / "keys")
        return EdgeProcess(folder, drive, keys=keys, words=words, environment=environment)

    def _short_lived(self, identity: str, folder: Path) -> Path:
        """Keys of an identity whose certificate ends soon."""
        return enrolled(self.edges["hall"], identity, folder, "--lifetime", "2d").parent

    def _camera(self, name: str, edge: str) -> None:
        state = self._folder / name.replace("/", "-")
        keys = self.keys
        if edge == "late":
            keys = self._short_lived(f"camera/{name}", state.with_suffix(".keys"))
        self._cameras[name] = self._open.enter_context(
            mez.publisher(name, edge=self.edges[edge].address, keys=keys, state=state)
        )

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        self._threads.append(thread)

    def _publish(self) -> None:
        small, large = (_native.encode_jpeg(image, 90) for image in (picture(1), noise()))
        while not self._over.wait(1 / FRAMES_PER_SECOND):
            for name, camera in list(self._cameras.items()):
                # A camera whose broker was killed takes none.
                with contextlib.suppress(mez.Error):
                    camera.send(large if name == "slow/cam1" and self._sends_much.is_set() else small)

    def _read(self, pattern: str, edge: str, **contract: Any) -> None:  # noqa: ANN401, options of subscribe
        """Read on a thread of its own, also while the edge is away."""
        frames = mez.subscribe(
            pattern, edge=f"unix://{self.edges[edge].socket}", connect_timeout=None, **contract
        )

        def read() -> None:
            with frames:
                while not self._over.is_set():
                    with contextlib.suppress(mez.WaitTimeoutError):
                        frames.next(timeout=0.2)

        self._begin(read)

    def _fill(self, edge: str) -> Path:
        """Fill an edge's disk, and return what fills it."""
        filler = self.edges[edge].store / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return filler

    def _fill_until_frames_are_lost(self, edge: str) -> None:
        """An edge's disk is full, and has room again."""
        filler = self._fill(edge)
        self._sends_much.set()
        until(lambda: self._lost(edge) > 0, "frames are lost")
        self._sends_much.clear()
        filler.unlink()

    def _lost(self, edge: str) -> float:
        """The frames that an edge lost before they were written: asked there, because Prometheus is late."""
        port = self.edges[edge].said["web"].rpartition(":")[2]
        token = {"Authorization": f"Bearer {self.token.read_text()}"}
        asked = urllib.request.Request(f"https://localhost:{port}/metrics", headers=token)
        context = ssl.create_default_context(cafile=self.keys / "authority.pem")
        with urllib.request.urlopen(asked, timeout=30, context=context) as answer:
            lines = answer.read().decode().splitlines()
        lost = [line for line in lines if line.startswith("mez_camera_store_lost_frames_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in lost)

    def _give_up_a_record(self) -> None:
        """A member of a group cannot work on a record, which is not given again."""
        edge = f"unix://{self.edges['hall'].socket}"
        with mez.subscribe("hall/cam1", edge=edge, group="work", deliver="every", tries=1) as frames:
            frames.next(timeout=60).failed("nobody can work on it")

    def _take_files(self, edge: str) -> None:
        """An edge may open few files more than it has."""
        pid = self.edges[edge].pid
        most = round(len(list(Path(f"/proc/{pid}/fd").iterdir())) * (1 + FILES_SPARE))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))


def clock_of(file: Path) -> dict[str, str]:
    """The environment of a process whose wall clock is off by what stands in a file. Others are right."""
    (library,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[tuple[Site, Prometheus]]:
    """A site, and a Prometheus that scrapes its edges."""
    with Site(folder) as site:
        authority = site.keys / "authority.pem"
        with Prometheus(folder / "prometheus", site.targets(), site.token, authority) as prometheus:
            yield site, prometheus
