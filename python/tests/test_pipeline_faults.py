"""What faults of the buses leave of a pipeline: a killed edge, brokers that are gone, missing rights."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

import mez
from tests.conftest import HOME
from tests.edges import EdgeProcess
from tests.kafka_brokers import Brokers, drive, fill
from tests.kafka_rules import Forbidden, add_scram_user
from tests.pipeline_runs import Running, publish
from tests.pipelines import until
from tests.pipelines_kafka import Kafka
from tests.support import Site, flowing

# On a busy machine Kafka, and a handful of interpreters, take their time to start.
pytestmark = pytest.mark.timeout(300)

Made = set[tuple[int, str]]


def missing(edge: str) -> Made:
    """The results that frames at an edge should have, from the first one on that has any, and have not.

    What was confirmed was on disk, so a killed edge leaves no excuse.
    """
    frames = {frame.sequence for frame in mez.read("dock/cam1", edge=edge, held_only=True, timeout=60)}
    results: Made = set()
    for result in mez.read("dock/cam1/count", edge=edge, held_only=True, timeout=60):
        assert result.of is not None
        results.add((result.of.id.sequence, result.data["half"]))
    first = min((number for number, _ in results), default=0)
    return {(number, half) for number in frames if number >= first for half in "01"} - results


def done(running: Running) -> int:
    """How many records the last stage has worked on."""
    count: int = running.status()["stages"].get("count", {}).get("taken", 0)
    return count


def test_an_edge_that_comes_late_and_is_killed_while_records_flow(tmp_path: Path) -> None:
    """What is waited for is said once. Every frame that the edge holds has its results, and none is dead."""
    with EdgeProcess(tmp_path) as edge:
        running = Running(tmp_path, edge.socket, None)
        running.usual(more="tries = 2\n")
        edge.kill()
        with running.started() as process:
            running.hears("the bus is away: the edge: no broker at unix://")
            # Several tries, in silence.
            time.sleep(2)
            edge.start()
            running.hears("the bus answers again, after ")
            running.hears(" runs: ")
            assert sum("no broker" in line for line in running.said) == 1, running.said
            with flowing("dock/cam1", edge=edge.address, keys=edge.keys, fps=20):
                until(lambda: done(running), lambda count: count > 100, "records flow")
                del running.said[:]
                edge.kill()
                running.hears("the bus is away: ")
                edge.start()
                running.hears("the bus answers again, after ")
                before = done(running)
                until(lambda: done(running), lambda count: count > before + 20, "records flow again")
            until(
                lambda: missing(f"unix://{edge.socket}"),
                lambda lacking: not lacking,
                "every frame has its results",
            )
            told = running.status()["stages"]
            process.send_signal(signal.SIGINT)
            assert running.ended(process) == 0, running.said
    assert "ended; nothing waits" in running.said[-1]
    assert [told[name]["dead"] for name in ("detect", "count")] == [0, 0]
    assert [told[name]["restarts"] for name in ("detect", "count")] == [0, 0]


def refused(running: Running) -> str:
    """The last line of a run that ends by itself with status 1."""
    with running.started() as process:
        assert running.ended(process) == 1, running.said
    assert not any("Traceback" in line for line in running.said), running.said
    return running.said[-1]


def test_ctrl_c_while_the_edge_is_away_ends_at_once(tmp_path: Path) -> None:
    """Nothing was begun, so nothing is left."""
    running = Running(tmp_path, tmp_path / "nowhere.sock", None)
    running.usual()
    with running.started() as process:
        running.hears("the bus is away: ")
        process.send_signal(signal.SIGINT)
        assert running.ended(process) == 0
    assert len(running.said) == 1, running.said


def test_a_missing_right_to_publish_ends_the_run_and_a_lost_one_is_waited_for(tmp_path: Path) -> None:
    """Both name the grant. No record is lost, and none becomes a dead letter."""
    site = Site(tmp_path)
    site.run("grant", "app/**", "watch,read", "dock/**")
    with site.edge() as edge, mez.publisher("dock/cam1", edge=edge) as camera:
        running = Running(tmp_path, edge.socket, None)
        running.mez_table = f'edge = "{edge.grpc_address}"\nkeys = "keys"'
        running.usual(more="tries = 2\n")
        with edge.subscribe("dock/*"), running.started() as process:
            running.hears(" runs: ")
            publish(camera, 1)
            assert running.ended(process) == 1, running.said
        assert "detect cannot run: dock/cam1/detect: app/" in running.said[-1]
        assert "mez keys grant app/" in running.said[-1] and "publish dock/cam1/detect" in running.said[-1]
        assert not any("Traceback" in line for line in running.said)

        site.run("grant", "app/**", "publish", "dock/**")
        # The edge looks at its rights once a second.
        until(lambda: _may_publish(site, edge), bool, "the grant is in force")
        with edge.subscribe("dock/*/count", deliver="every") as results, running.run():
            assert {one["number"] for one in running.counted(results, 2)} == {0}
            site.run("ungrant", "app/**", "publish")
            while not any("detect waits: " in line for line in running.said):
                publish(camera, 1)
                time.sleep(0.2)
            assert "run `mez keys grant app/" in running.hears("detect waits: dock/cam1/detect: app/")
            # Longer than its tries would last.
            time.sleep(2)
            site.run("grant", "app/**", "publish", "dock/**")
            running.hears("detect continues, after ")
            due = {(number, half) for number in range(1, camera.published) for half in "01"}
            while due:
                due -= {(one["number"], one["half"]) for one in running.counted(results, 1)}

            # The same for what both stages read.
            site.run("ungrant", "app/**", "watch,read")
            assert "run `mez keys grant app/" in running.hears("detect waits: the cameras dock/*: app/")
            running.hears("count waits: the cameras dock/*/detect: app/")
            site.run("grant", "app/**", "watch,read", "dock/**")
            running.hears("count continues, after ")
            number, newest = camera.published, -1
            while newest < number:
                # Frames cross once a worker has joined again.
                publish(camera, 1)
                with contextlib.suppress(mez.WaitTimeoutError):
                    newest = results.next(timeout=0.5).data["number"]
            told = running.status()["stages"]
        assert [(told[name]["dead"], told[name]["restarts"]) for name in told] == [(0, 0), (0, 0)]


def _may_publish(site: Site, edge: mez.Edge) -> bool:
    try:
        with mez.publisher("dock/cam1/try", of="dock/cam1", **site.remote(edge)):
            return True
    except mez.PermissionDenied:
        return False


def test_users_and_access_rules_of_kafka(tmp_path: Path, kafka: Kafka, edge: mez.Edge) -> None:
    """SCRAM with a wrong password, a topic without the right to write, the right taken away: each is told."""
    running = Running(tmp_path, edge.socket, kafka)
    add_scram_user(kafka, running.name, "right")
    secrets = tmp_path / "secrets.toml"
    secrets.touch(0o600)
    running.kafka_table = (
        f'servers = "{kafka.cluster["secure"]}"\nsecurity = "tls"\nca = "{kafka.cluster["ca"]}"\n'
        'sasl = "SCRAM-SHA-512"\ncredentials = "secrets.toml"\n'
    )
    running.usual(more="tries = 2\n")
    secrets.write_text(f'username = "{running.name}"\npassword = "wrong"\n')
    assert "the user name or the password is wrong; see kafka.credentials" in refused(running)

    secrets.write_text(f'username = "{running.name}"\npassword = "right"\n')
    forbidden = Forbidden(kafka, f"{running.name}.detect", running.name)
    with mez.publisher("dock/cam1", edge=edge) as camera:
        with edge.subscribe("dock/*"), running.started() as process:
            running.hears(" runs: ")
            publish(camera, 1)
            assert running.ended(process) == 1, running.said
        assert f"detect cannot run: {running.name}.detect: " in running.said[-1]
        assert "the user may not use the topic; give it the right (ACL)" in running.said[-1]
        forbidden.allow()
        with edge.subscribe("dock/*/count", deliver="every") as results, running.run():
            assert {one["number"] for one in running.counted(results, 2)} == {0}
            forbidden.forbid()
            publish(camera, 1)
            assert "give it the right (ACL)" in running.hears("detect waits: ")
            forbidden.allow()
            assert {one["number"] for one in running.counted(results, 2)} == {1}
            told = running.status()["stages"]
        assert [(told[name]["dead"], told[name]["restarts"]) for name in told] == [(0, 0), (0, 0)]


def test_one_of_three_brokers_is_gone_then_two(tmp_path: Path, edge: mez.Edge) -> None:
    """With one gone records flow. With two they wait, and none is lost."""
    with Brokers(tmp_path / "kafka") as brokers:
        running = Running(tmp_path, edge.socket, None)
        running.kafka_table = f'servers = "{brokers.servers}"\npartitions = 2\nreplication = 3\n'
        running.usual(more="tries = 2\n")
        with (
            mez.publisher("dock/cam1", edge=edge) as camera,
            edge.subscribe("dock/*/count", deliver="every") as results,
            running.run(),
        ):
            for number in range(6):
                if number == 2:
                    brokers.kill(3)
                publish(camera, 1)
                # What was not committed at the broker that is gone may be given again.
                due = {"0", "1"}
                while due:
                    due -= {one["half"] for one in running.counted(results, 1) if one["number"] == number}
            # Two are fewer than have to be in step: nothing is confirmed by one alone.
            brokers.kill(2)
            publish(camera, 1)
            with pytest.raises(mez.WaitTimeoutError):
                results.next(timeout=2)
            brokers.start(2)
            found: set[str] = set()
            while found != {"0", "1"}:
                (one,) = running.counted(results, 1)
                found |= {one["half"]} if one["number"] == 6 else set()
            told = running.status()["stages"]
        assert [(told[name]["dead"], told[name]["restarts"]) for name in told] == [(0, 0), (0, 0)]


@pytest.mark.skipif(os.geteuid() != 0, reason="a drive of its own needs root")
def test_kafka_is_full_and_the_run_is_ended_meanwhile(tmp_path: Path, edge: mez.Edge) -> None:
    """It is told. Ctrl-C waits for `drain_s` at most. With room again every frame gets its results."""
    folder = tmp_path / "kafka"
    with drive(folder, 128):
        kafka = Kafka(folder, HOME)
        running = Running(tmp_path, edge.socket, kafka)
        running.usual(more="tries = 2\n", head="drain_s = 3")
        with (
            mez.publisher("dock/cam1", edge=edge) as camera,
            edge.subscribe("dock/*/count", deliver="every") as results,
        ):
            with running.started() as process:
                running.hears(" runs: ")
                publish(camera, 1)
                assert {one["number"] for one in running.counted(results, 2)} == {0}
                fill(folder / "filler")
                until(lambda: publish(camera, 1), lambda _: "detect waits: " in said(running), "it waits")
                process.send_signal(signal.SIGINT)
                assert running.ended(process) in (0, 1), running.said
            assert "the number of waiting records is unknown" in running.said[-1]
            assert not any("Traceback" in line for line in running.said), running.said
            (folder / "filler").unlink()
            # It ended by itself: a Kafka without a drive that it can write to does.
            kafka.stop()
            kafka.start()
            with running.run():
                due = {(number, half) for number in range(1, camera.published) for half in "01"}
                while due:
                    due -= {(one["number"], one["half"]) for one in running.counted(results, 1)}
                told = running.status()["stages"]
        assert [told[name]["dead"] for name in told] == [0, 0]
        kafka.stop()


def said(running: Running) -> str:
    """All that was said so far."""
    return "\n".join(running.said)
