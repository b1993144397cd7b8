"""What has to hold across processes: signals, forks, kills, exits."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mez
from tests.support import camera_broker, deliver, number_of, picture


@contextmanager
def script(text: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program in a process of its own, which ends with the block.

    It hears of Ctrl-C also where these tests do not, because a shell runs them in the background.
    """
    hears = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    words = [sys.executable, "-u", "-c", hears + textwrap.dedent(text), *arguments]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a program prints, or what it said when it died."""
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.readline().strip()
    return said or process.stderr.read()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How a program ended, and what it said on its error output."""
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


WAITS = [
    "for frame in mez.subscribe('cam', edge=address): pass",
    "mez.subscribe('cam', edge=address).next()",
    "asyncio.run(read())",
    "mez.publisher('cam', edge='127.0.0.1:9', keys=keys).wait_connected()",
    "next(mez.publisher('cam', edge='127.0.0.1:9', keys=keys).replies())",
    "mez.subscribe('cam', edge='unix:///nowhere.sock', connect_timeout=None)",
]


@pytest.mark.parametrize("wait", WAITS)
def test_control_c_ends_every_wait(edge: mez.Edge, wait: str) -> None:
    """With the KeyboardInterrupt that Python programs expect, long before the wait would be over."""
    program = f"""
        import asyncio, sys, mez
        address, keys = sys.argv[1:]
        async def read():
            async for frame in mez.subscribe('cam', edge=address): pass
        print("ready")
        try:
            {wait}
        except KeyboardInterrupt:
            print("interrupted")
    """
    with script(program, f"unix://{edge.socket}", str(edge.keys)) as process:
        assert line(process) == "ready"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert line(process) == "interrupted"
        status, errors = ended(process)
        assert status == 0, errors


def test_a_program_that_does_not_catch_control_c_dies_of_it(edge: mez.Edge) -> None:
    """As shells and supervisors expect."""
    program = "import sys, mez; s = mez.subscribe('cam', edge=sys.argv[1]); print('ready'); list(s)"
    with script(program, f"unix://{edge.socket}") as process:
        assert line(process) == "ready"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        status, errors = ended(process)
        assert status in (-signal.SIGINT, 128 + signal.SIGINT)
        assert errors.rstrip().endswith("KeyboardInterrupt")


# Python 3.12 and later warn of what this test is about.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_is_told_and_can_begin_anew(edge: mez.Edge) -> None:
    """What the parent made refuses to work there instead of hanging, and what the child makes works."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", deliver="every") as frames:
        frame = deliver(camera, frames)
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            # Whatever happens, the child must not run the rest of the tests.
            try:
                os.write(writes, _in_child(edge, camera, frames, frame).encode())
            except BaseException as error:
                os.write(writes, repr(error).encode())
            finally:
                os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as said:
            assert said.read() == "all as it should be"
        os.waitpid(child, 0)
        camera.send(picture(12))
        assert number_of(frames.next(timeout=30).image) == 12


def _in_child(edge: mez.Edge, camera: mez.Publisher, frames: mez.Subscription, frame: mez.Frame) -> str:
    for use in (
        lambda: camera.send(picture(1)),
        lambda: camera.connected,
        camera.wait_connected,
        camera.next_reply,
        frames.next,
        lambda: frame.reply([]),
    ):
        try:
            use()
        except mez.ForkedError as error:
            assert "start processes with multiprocessing.get_context" in str(error)
        else:
            return f"{use} went through"
    # Closing them is left to the parent.
    camera.close()
    frames.close()
    edge.close()
    frame.image  # noqa: B018, needs no threads
    mine = mez.subscribe("cam", edge=f"unix://{edge.socket}")
    with mine, mez.publisher("child", edge=edge.address, keys=edge.keys) as child:
        child.wait_connected(timeout=30)
        known = sorted(info.camera for info in mez.cameras(edge=f"unix://{edge.socket}"))
        return "all as it should be" if known == ["cam", "child"] else f"cameras {known}"


def test_frames_go_on_after_the_edge_was_killed(edge: mez.Edge, tmp_path: Path) -> None:
    """Publisher and subscription find the new one by themselves, and what was missed is accounted for."""
    program = """
        import signal, sys, mez
        keys, listen, socket = sys.argv[1:]
        edge = mez.edge(keys=keys, listen=listen, grpc=None, socket=socket)
        print(edge.address)
        signal.pause()
    """
    socket = tmp_path / "edge.sock"
    events: list[mez.Event] = []
    with script(program, str(edge.keys), "127.0.0.1:0", str(socket)) as first:
        address = line(first)
        with (
            mez.publisher("cam", edge=address, keys=edge.keys) as camera,
            mez.subscribe("cam", edge=f"unix://{socket}", on_event=events.append) as frames,
        ):
            before = deliver(camera, frames)
            first.kill()
            first.wait()
            camera.send(picture(1))
            with pytest.raises(mez.WaitTimeoutError):
                frames.next(timeout=0.1)
            with script(program, str(edge.keys), address, str(socket)) as second:
                assert line(second) == address
                after = deliver(camera, frames)
                assert after.epoch == before.epoch
                assert after.skipped_count == after.sequence - before.sequence - 1
    kinds = [event.kind for event in events]
    assert "disconnected" in kinds
    assert "reconnected" in kinds


def test_a_separate_camera_broker(edge: mez.Edge, tmp_path: Path) -> None:
    """Publishing through `mez camera`, which is killed and comes back; frames meanwhile are dropped."""
    socket = tmp_path / "camera.sock"
    with camera_broker("dock/cam1", edge, socket) as first:
        camera = mez.publisher("dock/cam1", broker=f"unix://{socket}")
        with camera, edge.subscribe("dock/cam1", deliver="every") as frames:
            frame = deliver(camera, frames)
            assert frame.epoch == 1
            sent = camera.send(picture(21))
            frame = frames.next(timeout=30)
            assert frame.id == sent
            assert number_of(frame.image) == 21
            assert frame.age_ms is not None
            frame.reply("seen")
            reply = camera.next_reply(timeout=30)
            assert (reply.frame, reply.json()) == (frame.id, "seen")
            with pytest.raises(mez.CaptureTimeError):
                camera.send(picture(1), captured=1)
            with pytest.raises(mez.WaitTimeoutError):
                camera.next_reply(timeout=0.05)

            first.kill()
            first.wait()
            while camera.connected:
                time.sleep(0.01)
            dropped = camera.dropped
            assert camera.send(picture(1)) is None
            assert camera.dropped == dropped + 1
            with camera_broker("dock/cam1", edge, socket):
                camera.wait_connected(timeout=30)
                frame = deliver_again(camera, frames)
                assert frame.epoch == 2


def deliver_again(camera: mez.Publisher, frames: mez.Subscription) -> mez.Frame:
    """Publish until a frame of the new broker arrives, which has to find the edge first."""
    for _ in range(300):
        camera.send(picture(2))
        try:
            return frames.next(timeout=0.1)
        except mez.WaitTimeoutError:
            continue
    raise AssertionError("nothing was delivered")


def test_programs_end_while_threads_wait(edge: mez.Edge) -> None:
    """Daemon threads in the middle of reading, sending and decoding do not make it crash or hang."""
    program = """
        import sys, threading, time, mez, numpy
        image = numpy.zeros((480, 640, 3), numpy.uint8)
        address, link, keys = sys.argv[1:]
        def read():
            for frame in mez.subscribe("**", edge=address):
                frame.image
        def send(camera):
            while True:
                camera.send(image)
        for name in ("a", "b"):
            camera = mez.publisher(name, edge=link, keys=keys)
            camera.wait_connected(30)
            threading.Thread(target=send, args=(camera,), daemon=True).start()
            threading.Thread(target=read, daemon=True).start()
            threading.Thread(target=lambda c: list(c.replies()), args=(camera,), daemon=True).start()
        own = mez.edge()
        print(own.keys)
        time.sleep(0.5)
    """
    for _ in range(3):
        with script(program, f"unix://{edge.socket}", edge.address, str(edge.keys)) as process:
            keys = Path(line(process))
            status, errors = ended(process)
            assert status == 0, errors
            # The log may tell of cameras that came and went under this load.
            assert not any(word in errors for word in ("Traceback", "panicked", "Fatal")), errors
            assert not keys.exists()


def test_importing_is_quick() -> None:
    """Neither NumPy nor an event loop nor OpenCV is loaded until it is needed."""
    program = "import sys, mez; print({'numpy', 'asyncio', 'cv2', 'rich'} & set(sys.modules))"
    with script(program) as process:
        assert line(process) == "set()"


def test_brokers_log_to_logging(edge: mez.Edge) -> None:
    """Under the name `mez`; without any configuration, warnings are seen."""
    program = """
        import sys, time, mez
        camera = mez.publisher("cam", edge="127.0.0.1:9", keys=sys.argv[1])
        try:
            camera.wait_connected(3)
        except mez.WaitTimeoutError as error:
            print(error)
    """
    with script(program, str(edge.keys)) as process:
        said = line(process)
        assert said.startswith("camera cam was not connected to the edge at 127.0.0.1:9 within 3")
        _, errors = ended(process)
        assert errors.startswith("cam: ")
        assert "trying again every 250 ms" in errors
