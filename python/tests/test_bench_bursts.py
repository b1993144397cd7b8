"""Bursts of frames, as experiments send them through real processes."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from rich.console import Console

from mez_bench.bursts import Driver, System
from mez_bench.children import mez as mez_command
from mez_bench.errors import ExperimentError
from mez_bench.payload import HEIGHT, STAMP_BYTES, WIDTH, write_jpeg
from mez_bench.run import Run
from mez_bench.systems import mez


@pytest.mark.parametrize("size_bytes", [100_000, 234_567, 1_700_000])
def test_a_payload_is_a_picture_of_exactly_so_many_bytes(tmp_path: Path, size_bytes: int) -> None:
    """Brokers check what they are given, so it has to be one; and the stamp must not hit the picture."""
    content = bytearray(write_jpeg(tmp_path, size_bytes).read_bytes())
    assert len(content) == size_bytes
    content[6 : 6 + STAMP_BYTES] = b"\xff" * STAMP_BYTES
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    assert image.shape == (HEIGHT, WIDTH, 3)


def test_a_payload_that_is_too_small_for_a_picture_is_refused(tmp_path: Path) -> None:
    """Rather than made of comments."""
    with pytest.raises(ExperimentError, match="too few"):
        write_jpeg(tmp_path, 5_000)


@pytest.fixture
def run() -> Iterator[Run]:
    """A run with a folder and processes, which end with the test."""
    with Run(quick=True, data=None, console=Console(stderr=True)) as run:
        yield run
    assert not run.folder.exists()


@pytest.fixture
def system(run: Run) -> System:
    """Mez, with a subscription."""
    system = mez.start(run)
    driver = Driver()
    driver.subscriptions(system, 1)
    driver.warm(system, write_jpeg(run.folder, 100_000))
    return system


def test_frames_of_a_burst_are_timed_counted_and_compared(run: Run, system: System) -> None:
    """Through both brokers; two subscriptions of one program see the same frames."""
    driver = Driver()
    payload = write_jpeg(run.folder, 100_000)
    driver.subscriptions(system, 2)
    # So far apart that also a busy machine is done with one before the next comes, which would replace it.
    burst = driver.burst(system, payload, 0.25, frames=6, first=2, subscriptions=2)
    assert burst.latency_ms.shape == (2, 6)
    assert (burst.lost, burst.corrupt) == (0, 0)
    assert (burst.received_ms > 0).all()
    assert set(burst.cpu_ms_per_frame) == {"publisher", "camera", "edge", "subscriber"}
    assert all(spent > 0 for spent in burst.cpu_ms_per_frame.values())


def test_a_frame_that_a_broker_refuses_is_an_error_and_not_a_loss(run: Run, system: System) -> None:
    """Figures about frames that nobody would take are worth nothing."""
    no_picture = run.folder / "no.jpg"
    no_picture.write_bytes(bytes(50_000))
    with pytest.raises(ExperimentError, match=r"publisher ended(.|\n)*refused"):
        Driver().burst(system, no_picture, 0.05, frames=5, first=0)


def test_a_broker_that_died_is_named(run: Run, system: System) -> None:
    """Rather than waited for."""
    os.kill(system.brokers["edge"].pid, signal.SIGKILL)
    with pytest.raises(ExperimentError, match="edge does not run any more"):
        Driver().warm(system, write_jpeg(run.folder, 100_000))


def test_a_system_that_delivers_nothing_is_named(
    run: Run, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what its processes logged."""
    monkeypatch.setattr("mez_bench.bursts.WARM_SECONDS_MAX", 0.0)
    os.kill(system.brokers["edge"].pid, signal.SIGSTOP)
    with pytest.raises(ExperimentError, match=r"mez does not deliver(.|\n)*camera"):
        Driver().warm(system, write_jpeg(run.folder, 100_000))


def test_a_slow_link_passes_both_ways_and_counts(run: Run) -> None:
    """And drops what does not fit into its queue."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as edge,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as camera,
    ):
        edge.bind(("127.0.0.1", 0))
        edge.settimeout(30)
        camera.settimeout(30)
        to = f"127.0.0.1:{edge.getsockname()[1]}"
        words = ["--bits-per-second", "1000000", "--queue-bytes-max", "2100"]
        link = run.children.start("link", mez_command("measure", "link", "--to", to, *words))
        host, port = link.ready().split(":")
        camera.sendto(b"ping", (host, int(port)))
        content, back = edge.recvfrom(2000)
        assert content == b"ping"
        edge.sendto(b"pong", back)
        assert camera.recv(2000) == b"pong"
        # A kilobyte takes 8 ms: two wait, and the others find no room.
        for _ in range(20):
            camera.sendto(bytes(1000), (host, int(port)))
        assert len(edge.recv(2000)) == 1000
        deadline = time.monotonic() + 30
        while (passed := link.ask(""))["up"]["datagrams"] + passed["up"]["dropped"] < 21:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert passed["up"]["dropped"] > 0
        kilobytes = passed["up"]["datagrams"] - 1
        assert passed["up"]["bytes"] == (4 + 28) + kilobytes * (1000 + 28)
        assert passed["up"]["lost"] == 0
        down = {name: passed["down"][name] for name in ("bytes", "datagrams", "dropped", "lost")}
        assert down == {"bytes": 4 + 28, "datagrams": 1, "dropped": 0, "lost": 0}
