"""Programs that share decoded pictures: the installed command starts a process beside the edge."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mez
from tests.support import number_of, picture, profile_of, video

CONTRACT: dict[str, Any] = {
    "accuracy": 0.9,
    "latency_ms": 5000,
    "profile": profile_of(64, 48, rung="h264/q24"),
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """`mez edge` with keys of its own: its process, where cameras reach it, and where programs do."""
    mez_command, keys = str(Path(sys.executable).parent / "mez"), tmp_path / "keys"
    init = [mez_command, "keys", "init", "--site", "test", "--keys", str(keys)]
    subprocess.run(init, check=True, capture_output=True)
    words = [mez_command, "--log", "error", "edge", "--keys", str(keys), "--enrol", "off"]
    words += ["--listen", "127.0.0.1:0", "--grpc", "off", "--state", str(tmp_path / "state")]
    words += ["--socket", str(tmp_path / "edge.sock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
            places = {"link": said["link"], "socket": f"unix://{tmp_path / 'edge.sock'}", "keys": keys}
            yield process.pid, places
        finally:
            process.kill()


def beside(parent: int) -> list[int]:
    """The processes that a process has started to decode."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            is_child = int(stat.read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and b"decode-pictures" in (stat.parent / "cmdline").read_bytes():
                found.append(int(stat.parent.name))
    return found


def is_shared(frame: mez.Frame) -> bool:
    """Whether another process decoded it."""
    return frame._picture is not None and frame._picture.shared


def test_a_process_beside_the_edge_decodes_for_programs(broker: tuple[int, dict[str, Any]]) -> None:
    """Without the package, which it has no use for. When it dies, programs go on and are told."""
    edge, places = broker
    reach = {"edge": places["socket"], "keys": places["keys"]}
    with (
        mez.publisher("cam", edge=places["link"], keys=places["keys"]) as camera,
        mez.subscribe("cam", **reach, **CONTRACT) as one,
        mez.subscribe("cam", **reach, **CONTRACT) as other,
    ):
        shared = [0, 0]
        for frame in video(camera, one):
            shared[0] += is_shared(frame)
            assert abs(number_of(frame.image) - frame.sequence % 90) <= 1
            with contextlib.suppress(mez.WaitTimeoutError):
                shared[1] += is_shared(other.next(timeout=1))
            if min(shared) >= 12:
                break
        assert min(shared) >= 12, shared
        (process,) = beside(edge)
        assert b"numpy" not in Path(f"/proc/{process}/maps").read_bytes()
        os.kill(process, signal.SIGKILL)
        own, not_decoded, deadline = 0, 0, time.monotonic() + 60
        while own < 12 and time.monotonic() < deadline:
            camera.send(picture(camera.published % 90))
            with contextlib.suppress(mez.WaitTimeoutError):
                frame = one.next(timeout=0.1)
                not_decoded += frame.skipped.get("not_decoded", 0)
                own += frame.encoding == "h264" and not is_shared(frame)
                assert abs(number_of(frame.image) - frame.sequence % 90) <= 2
        assert own == 12 and not_decoded > 0
        assert beside(edge) == []


def test_an_edge_in_a_program_starts_no_process(edge: mez.Edge) -> None:
    """It decodes for programs in the process that it is in."""
    with (
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam", **CONTRACT) as one,
        edge.subscribe("cam", **CONTRACT) as other,
    ):
        for frame in video(camera, one):
            with contextlib.suppress(mez.WaitTimeoutError):
                other.next(timeout=1)
            if is_shared(frame):
                break
        assert beside(os.getpid()) == []
