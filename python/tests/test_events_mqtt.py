"""Events and figures of a real edge at a real MQTT broker, which is restarted meanwhile."""

import json
import threading
from pathlib import Path
from typing import Any

import mez
from tests.pages import EdgeProcess, running, scene
from tests.receivers import EventsBridge, Mosquitto, Reader, wait_for
from tests.support import profile_of

CAMERA = "mez/hall7/cameras/hall/cam"
EVENTS = "mez/hall7/events"
STATUS = "mez/hall7/status"


def written(folder: Path, edge: EdgeProcess, broker: Mosquitto) -> EventsBridge:
    """A bridge to a broker, not started."""
    secrets = folder / "mqtt-secrets.toml"
    secrets.touch(mode=0o600)
    secrets.write_text(f'username = "{broker.USER}"\npassword = "{broker.PASSWORD}"\n')
    text = f"""
[bridge]
name = "hall7"
[mez]
edge = "{edge.socket}"
keys = "{edge.keys}"
[mqtt]
server = "localhost:{broker.port}"
security = "tls"
ca = "{broker.ca}"
credentials = "{secrets.name}"
figures_s = 1
timeout_s = 2
"""
    return EventsBridge(folder, text)


class Seen:
    """A camera, and an application with a contract that no frame can keep."""

    def __init__(self, edge: EdgeProcess) -> None:
        """Begin."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(edge,))
        self._thread.start()

    def _run(self, edge: EdgeProcess) -> None:
        contract: dict[str, Any] = {"latency_ms": 1, "accuracy": 0.99, "application": "counter"}
        contract["profile"] = profile_of(320, 180, small=0.5, rung="jpeg/w160/q44/420")
        with (
            mez.publisher("hall/cam", edge=edge.address, keys=edge.keys, state=edge.folder / "cam") as camera,
            mez.subscribe("hall/*", edge=edge.socket, **contract),
        ):
            number = 0
            while not self._over.wait(0.1):
                number += 1
                camera.send(scene(number, 8)[0])

    def close(self) -> None:
        """End it."""
        self._over.set()
        self._thread.join()


def test_a_home_sees_cameras_over_restarts_of_its_broker(tmp_path: Path) -> None:
    """Devices are found, states are kept, events are confirmed, and a bridge that dies is seen."""
    with (
        running(tmp_path / "edge") as edge,
        Mosquitto(tmp_path / "mqtt") as broker,
        Reader(broker) as reader,
        written(tmp_path, edge, broker) as bridge,
    ):

        def said() -> str:
            return f"{bridge.said()}\n{reader.heard()}"

        wait_for(bridge.is_ready, said)
        seen = Seen(edge)
        try:
            wait_for(lambda: reader.state(CAMERA).get("contract_kept") is False, said)
            assert reader.state(CAMERA)["present"] is True
            assert reader.state(CAMERA)["contracts"][0]["application"] == "counter"
            assert reader.kept[STATUS] == "online"
            found = [json.loads(text) for topic, text in reader.kept.items() if topic.endswith("/config")]
            assert [of["device"]["name"] for of in found] == ["hall/cam"]
            for part in found[0]["components"].values():
                assert part["platform"] in ("sensor", "binary_sensor")
            assert found[0]["state_topic"] == CAMERA
            assert found[0]["availability_topic"] == STATUS
            wait_for(
                lambda: any(
                    event["kind"] == "contract" and event["severity"] == "error"
                    for event in reader.events(EVENTS)
                ),
                said,
            )
            broker.stop()
            wait_for(lambda: not reader.is_subscribed(), said)
            reader.kept.clear()
        finally:
            seen.close()
        # It happened while the broker was away, which has forgotten everything.
        wait_for(
            lambda: any(
                event["kind"] == "camera" and event["state"] == "absent"
                for event in bridge.kept()["targets"]["mqtt"]["events"]
            ),
            said,
        )
        # The bridge is refused until the reader has subscribed.
        broker.start(broker.READER)
        reader.wait_subscribed()
        wait_for(lambda: "refuses this bridge" in said(), said)
        broker.let_in(broker.USER)
        wait_for(lambda: reader.state(CAMERA).get("present") is False, said)
        wait_for(lambda: any(topic.endswith("/config") for topic in reader.kept), said)
        wait_for(
            lambda: any(
                event["kind"] == "camera" and event["state"] == "absent" for event in reader.events(EVENTS)
            ),
            said,
        )
        wait_for(lambda: reader.kept.get(STATUS) == "online", said)
        bridge.__exit__()
        wait_for(lambda: reader.kept.get(STATUS) == "offline", said)
        bridge.start()
        wait_for(lambda: reader.kept.get(STATUS) == "online", said)
        assert bridge.end() == 0
        wait_for(lambda: reader.kept.get(STATUS) == "offline", said)
        numbers = [int(event["id"].rpartition("-")[2]) for event in reader.events(EVENTS)]
        # At least once: what the broker had not confirmed before it ended comes again.
        first_times = list(dict.fromkeys(numbers))
        assert first_times == sorted(first_times)
        assert broker.PASSWORD not in bridge.said()
