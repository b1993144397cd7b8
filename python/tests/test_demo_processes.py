"""Brokers of the demo start, are started again, and cannot be left behind.

The programs here are small Python scripts: what is tested is how the demo handles processes, not the brokers.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mez._processes import LEASH, Child, ProcessError, free_port, run_to_end
from mez.demo import supervise
from mez.demo.supervise import Supervisor
from mez.demo.usage import UsageMeter

SERVES = "import time; print('ready to serve', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SERVES}"
FAILS = "import sys; print('no room left', file=sys.stderr); sys.exit(3)"

HANG_SECONDS = 60


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait; fail if it takes so long that it never will be."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Tell whether no such process runs; one that only waits to be reaped does not."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


Make = Callable[[str, str], Child]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make brokers out of names and programs; end them afterwards."""
    made: list[Child] = []

    def one(name: str, program: str) -> Child:
        broker = Child(name, [sys.executable, "-c", program], tmp_path / f"{name}.log")
        made.append(broker)
        return broker

    yield one
    for broker in made:
        broker.stop(0)
        broker.close()


def start(broker: Child) -> int:
    """Start it, wait until it serves, and return its number."""
    broker.start()
    broker.await_ready(lambda: False)
    assert broker.pid is not None
    return broker.pid


def test_broker_serves_and_ends_when_asked(make: Make) -> None:
    """In order: by SIGTERM, which it does not have to be killed for."""
    broker = make("edge", SERVES)
    pid = start(broker)
    assert broker.ready
    assert broker.poll() is None
    assert broker.stop()
    assert gone(pid)
    assert broker.pid is None
    assert str(broker.exited) == "killed by SIGTERM"


def test_broker_that_does_not_end_is_killed(make: Make) -> None:
    """And that is told."""
    broker = make("edge", STUBBORN)
    pid = start(broker)
    assert not broker.stop(seconds_max=0.2)
    assert gone(pid)


def test_broker_that_fails_to_start_says_why(make: Make) -> None:
    """With the end of what it logged."""
    broker = make("edge", FAILS)
    broker.start()
    with pytest.raises(ProcessError, match=r"edge exited with 3 before it was ready(.|\n)*no room left"):
        broker.await_ready(lambda: False)


def test_waiting_for_a_broker_can_be_given_up(make: Make) -> None:
    """As Ctrl-C does."""
    broker = make("edge", "import time; time.sleep(600)")
    broker.start()
    broker.await_ready(lambda: True)
    assert not broker.ready


def test_what_a_broker_started_ends_with_it(make: Make) -> None:
    """Also when the broker is killed and cannot see to it."""
    program = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "print('child', child.pid, file=sys.stderr, flush=True); print('ready', flush=True); time.sleep(600)"
    )
    broker = make("camera", program)
    pid = start(broker)
    child = int(broker.log.read_text().split()[1])
    os.kill(pid, signal.SIGKILL)
    until(lambda: broker.poll() is not None, "the broker's end")
    until(lambda: gone(child), "the end of its child")


def test_brokers_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    """By the kernel, since nobody else is left to do it."""
    program = (
        "import sys, time; from pathlib import Path; from mez._processes import Child; "
        f"broker = Child('edge', [sys.executable, '-c', {SERVES!r}], Path({str(tmp_path / 'log')!r})); "
        "broker.start(); broker.await_ready(lambda: False); print(broker.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        broker = int(demo.stdout.readline())
        assert not gone(broker)
        demo.kill()
    until(lambda: gone(broker), "the broker's end")


def test_leash_runs_nothing_if_its_parent_has_ended_already() -> None:
    """Between its start and its wish to be ended with the parent, the parent may end."""
    command = [sys.executable, "-I", "-S", str(LEASH), "1", sys.executable, "-c", "print('runs')"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert finished.stdout == ""
    assert "already ended" in finished.stderr


def test_settings_of_the_user_do_not_reach_the_brokers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """`MEZ_EDGE_LISTEN` of somebody's own edge would move the demo's."""
    monkeypatch.setenv("MEZ_EDGE_LISTEN", "0.0.0.0:7650")
    broker = make(
        "edge",
        f"import os, sys; print([n for n in os.environ if n[:4] == 'MEZ_'], file=sys.stderr); {SERVES}",
    )
    start(broker)
    assert broker.log.read_text().strip() == "[]"


def test_short_command_that_fails_says_why() -> None:
    """Its name, its exit code and its words."""
    run_to_end("true", [sys.executable, "-c", ""])
    with pytest.raises(ProcessError, match="keys failed with exit code 3: no room left"):
        run_to_end("keys", [sys.executable, "-c", FAILS])


def test_free_ports_can_be_listened_on() -> None:
    """They are above the privileged ones, and below those of outgoing connections."""
    assert 1024 < free_port() < 32768


def supervised(make: Make) -> tuple[Supervisor, Child, Child]:
    """Start an edge and a camera, and watch them."""
    edge, camera = make("edge", SERVES), make("cam", SERVES)
    start(edge)
    start(camera)
    return Supervisor(edge, {"dock/cam1": camera}), edge, camera


def watch_until(supervisor: Supervisor, condition: Callable[[], bool], what: str) -> None:
    """Let the supervisor do its work meanwhile."""

    def watched() -> bool:
        supervisor.watch(0.05)
        return condition()

    until(watched, what)


def test_killed_broker_is_started_again_and_its_absence_measured(make: Make) -> None:
    """A frame that was on its way when it died is not taken for the first one after."""
    supervisor, edge, _ = supervised(make)
    before = edge.pid
    assert before is not None
    supervisor.frame_arrived("dock/cam1", time.monotonic())
    os.kill(before, signal.SIGKILL)
    watch_until(supervisor, lambda: len(supervisor.incidents) == 1, "its death")
    supervisor.frame_arrived("dock/cam1", time.monotonic())
    watch_until(supervisor, lambda: edge.ready, "its second start")
    incident = supervisor.incidents[0]
    assert incident.resume_ms is None
    assert "waiting for frames of dock/cam1" in str(incident)
    supervisor.frame_arrived("dock/cam1", time.monotonic())
    assert edge.pid != before
    assert supervisor.starts("edge") == 2
    assert supervisor.starts("cam") == 1
    assert incident.resume_ms is not None
    assert incident.resume_ms >= supervise.RESTART_AFTER_S * 1000
    assert incident.exit.from_outside
    assert "edge was killed by SIGKILL; frames came again after" in str(incident)


def test_death_of_the_edge_is_over_when_every_camera_is_back(make: Make) -> None:
    """The first camera's frames alone do not end it."""
    edge, one, other = make("edge", SERVES), make("one", SERVES), make("other", SERVES)
    pid = start(edge)
    start(one)
    start(other)
    supervisor = Supervisor(edge, {"dock/cam1": one, "dock/cam2": other})
    os.kill(pid, signal.SIGKILL)
    watch_until(supervisor, lambda: bool(supervisor.incidents) and edge.ready, "its second start")
    supervisor.frame_arrived("dock/cam1", time.monotonic())
    assert supervisor.incidents[0].resume_ms is None
    supervisor.frame_arrived("dock/cam2", time.monotonic())
    assert supervisor.incidents[0].resume_ms is not None


def test_broker_that_keeps_dying_is_left_alone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few starts that came to nothing; and its end is its own fault."""
    monkeypatch.setattr(supervise, "RESTART_AFTER_S", 0.0)
    edge, camera = make("edge", SERVES), make("dock/cam1".replace("/", "-"), FAILS)
    start(edge)
    camera.start()
    supervisor = Supervisor(edge, {"dock/cam1": camera})
    watch_until(supervisor, lambda: list(supervisor.given_up) == ["dock-cam1"], "its being given up")
    assert len(supervisor.incidents) == supervise.FAILED_STARTS_MAX
    assert not any(incident.exit.from_outside for incident in supervisor.incidents)
    assert "no room left" in supervisor.incidents[0].log


def test_usage_of_a_process_is_what_the_kernel_counts() -> None:
    """Of this one, which can be asked itself."""
    meter = UsageMeter()
    assert meter.sample(None) is None
    first = meter.sample(os.getpid())
    assert first is not None
    assert first.cpu_percent is None
    ends = time.process_time() + 0.2
    while time.process_time() < ends:
        pass
    second = meter.sample(os.getpid())
    assert second is not None
    assert second.cpu_percent is not None
    assert second.cpu_percent > 0
    assert meter.cpu_seconds == pytest.approx(time.process_time(), abs=0.1)
    assert meter.rss_mb_max is not None
    assert meter.rss_mb_max >= 0.9 * second.rss_mb > 5


def test_usage_goes_on_over_a_second_start(make: Make) -> None:
    """The memory of the larger start and the time of both; a process that has ended uses nothing."""
    program = "import time; held = bytearray({} << 20); print('ready', flush=True); time.sleep(600)"
    meter = UsageMeter()
    large = make("large", program.format(80))
    meter.sample(start(large))
    large.stop()
    assert meter.sample(large.pid) is None
    time_before = meter.cpu_seconds
    small = make("small", program.format(1))
    now = meter.sample(start(small))
    assert now is not None
    assert meter.rss_mb_max is not None
    assert now.rss_mb < 80 < meter.rss_mb_max
    assert meter.cpu_seconds >= time_before
