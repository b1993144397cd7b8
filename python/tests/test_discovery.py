"""Two hosts with a cable between them, one of which runs an edge: the other is never told where."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mez_bench.line import ADDRESSES, DEVICE, line

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

MEZ = str(Path(sys.executable).parent / "mez")
PUBLISH = """
import time, numpy, mez
with mez.publisher("dock/cam2") as cam:
    cam.wait_connected(timeout=30)
    print(cam.edge, flush=True)
    while True:
        cam.send(numpy.zeros((48, 64, 3), numpy.uint8))
        time.sleep(0.1)
"""
SUBSCRIBE = """
import mez
with mez.subscribe("dock/*", connect_timeout=20) as frames:
    print(frames.next(timeout=30).camera)
"""


class Host:
    """A host of its own: a network, and folders.

    Args:
        within: The words that start a program there.
        folder: Where its keys, its state and its sockets are.
    """

    def __init__(self, within: list[str], folder: Path) -> None:
        folder.mkdir()
        self._within = within
        self._folder = folder
        self._surroundings = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("MEZ_", "XDG_"))},
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "MEZ_STATE": str(folder / "state"),
            # As root, sockets would be in /run/mez, which all hosts here have in common.
            "MEZ_EDGE_SOCKET": str(folder / "edge.sock"),
            "MEZ_CAMERA_SOCKET": str(folder / "camera.sock"),
        }

    def tried(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            [*self._within, *words],
            env=self._surroundings,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    def ran(self, *words: str) -> str:
        """Run a program that has to succeed; what it prints."""
        done = self.tried(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self, *words: str) -> Iterator[str]:
        """Have a program run; its first line."""
        with subprocess.Popen(
            [*self._within, *words],
            env=self._surroundings,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().strip()
            finally:
                process.terminate()

    def edge(self, site: str, name: str, *more: str) -> list[str]:
        """Make a site; the words that run its edge."""
        self.ran(MEZ, "keys", "init", "--site", site)
        return [MEZ, "--log", "warn", "edge", "--name", name, *more]

    def discovered(self, seen: Callable[[dict[str, dict[str, Any]]], bool]) -> dict[str, dict[str, Any]]:
        """Look until that is seen. An announcement takes a second, more on a busy machine."""
        found: dict[str, dict[str, Any]] = {}
        for _ in range(10):
            lines = self.tried(MEZ, "discover", "--json").stdout.splitlines()
            found = {edge["edge"]: edge for edge in map(json.loads, lines)}
            if seen(found):
                return found
        raise AssertionError(f"it is never seen: {found}")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """That of the edge, and one more."""
    with line() as cable:
        for place in (0, 1):
            subprocess.run([*cable.within(place), "ip", "link", "set", DEVICE, "multicast", "on"], check=True)
        yield Host(cable.within(0), tmp_path / "0"), Host(cable.within(1), tmp_path / "1")


def test_a_host_joins_publishes_and_subscribes_without_being_told_where(
    hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    """A token is all that somebody carries over: for a camera, and for an application."""
    there, here = hosts
    words = there.edge("harbour", "hall", "--announce", "--web", "[::]:7653")
    with there.running(*words) as ready:
        assert ready.startswith("ready"), ready
        # Without keys nobody can prove anything.
        strange = here.discovered(lambda found: "hall" in found)["hall"]
        assert strange["proven"] is False
        assert "no keys" in strange["why"]
        for who in (["camera/dock"], ["app/counter", "--watch", "dock/*", "--observe", "dock/*"]):
            token = there.ran(MEZ, "keys", "token", *who).split()[0]
            here.ran(MEZ, "keys", "enrol", token)
        hall = here.discovered(lambda found: bool(found["hall"]["proven"]))["hall"]
        assert (hall["site"], hall["address"]) == ("harbour", ADDRESSES[0])
        assert (hall["link"], hall["grpc"], hall["enrol"]) == (7650, 7651, 7652)
        assert hall["page"] == f"https://{ADDRESSES[0]}:7653"
        assert "yes" in here.ran(MEZ, "discover")

        source = ["-f", "lavfi", "-i", "testsrc=size=160x120:rate=20", "-t", "2", "-c:v", "mjpeg"]
        here.ran("ffmpeg", "-v", "error", *source, str(tmp_path / "video.avi"))
        camera = [MEZ, "--log", "error", "camera", "dock/cam1", "--source", str(tmp_path / "video.avi")]
        with here.running(*camera, "--loop") as ready:
            assert ready.startswith("ready"), ready
            assert here.ran(sys.executable, "-c", SUBSCRIBE).strip() == "dock/cam1"
        with here.running(sys.executable, "-c", PUBLISH) as edge:
            assert edge == f"{ADDRESSES[0]}:7650"
            assert "dock/cam2" in here.ran(MEZ, "cameras")


def test_who_answers_and_is_not_taken_is_named(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """An edge of another site; then none at all."""
    there, here = hosts
    own = tmp_path / "harbour"
    here.ran(MEZ, "keys", "init", "--site", "harbour", "--keys", str(own))
    with here.running(MEZ, "keys", "serve", "--keys", str(own), "--listen", "127.0.0.1:7652"):
        for who in ("camera/dock", "app/counter"):
            token = here.ran(MEZ, "keys", "token", who, "--keys", str(own)).split()[0]
            for _ in range(50):
                if here.tried(MEZ, "keys", "enrol", token, "--edge", "127.0.0.1").returncode == 0:
                    break
                time.sleep(0.1)
    with there.running(*there.edge("airport", "gate", "--announce")):
        gate = here.discovered(lambda found: "gate" in found)["gate"]
        assert "belongs to the site airport, but this host belongs to harbour" in gate["why"]
        for words in (["camera", "dock/cam1"], ["cameras"], ["subscribe", "dock/*"]):
            refused = here.tried(MEZ, *words)
            assert refused.returncode == 1
            assert "no edge of the site harbour answered" in refused.stderr
            assert f"gate at {ADDRESSES[0]} belongs to the site airport" in refused.stderr
    # The edge has said that it is gone.
    alone = here.tried(MEZ, "discover")
    assert (alone.returncode, "no edge answered" in alone.stderr) == (1, True), alone.stderr
    subscribed = here.tried(
        sys.executable, "-c", SUBSCRIBE.replace("connect_timeout=20", "connect_timeout=0")
    )
    assert "ConnectError: no edge is given, and no edge of the site harbour answered" in subscribed.stderr
    # An edge's host stays with its own edge, and does not look.
    own_edge = here.tried(MEZ, "cameras", "--keys", str(own))
    assert "no broker at unix://" in own_edge.stderr


def test_an_edge_on_loopback_is_not_announced(tmp_path: Path) -> None:
    """It would lead nowhere."""
    (tmp_path / "edge.toml").write_text('role = "edge"\nlisten = "127.0.0.1:0"\nannounce = true\n')
    checked = subprocess.run(
        [MEZ, "config", "check", str(tmp_path / "edge.toml")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 1
    assert "announce" in checked.stderr
    assert "only on loopback" in checked.stderr
