"""Runs a bridge for events: threads read events, watch the edge, and deliver; this one writes the state."""

import threading
import time
from pathlib import Path
from typing import Any, Final

from mez._commands import Teller
from mez._interrupt import Interrupt
from mez._web import Web
from mez.bridge.events.delivery import Delivery
from mez.bridge.events.file import EventsBridge, Webhook
from mez.bridge.events.mqtt import RETRY_S_MAX, MqttSender
from mez.bridge.events.spool import EDGE, MISSED, Queue, Spool
from mez.bridge.events.watch import Watch
from mez.bridge.events.webhook import WebhookSender
from mez.errors import ConnectError, Error

LOOK_S: Final = 0.5
"""How often changes are written and shown, and the end is checked for, in seconds."""
WATCH_S: Final = 5.0
"""How often the bridge checks whether the edge answers, in seconds."""
AGAIN_S: Final = 1.0
"""The pause before the next try if the edge did not answer, in seconds."""

MQTT: Final = "mqtt"


class EventsRun:
    """A bridge for events that runs.

    Args:
        bridge: The bridge.
        place: The folder for its state.
        teller: Prints lines for people.
        progress_s: The interval of status lines, in seconds. 0: only at the end.

    Raises:
        Error: A secret or the state cannot be read, or a library is missing.
    """

    def __init__(self, bridge: EventsBridge, place: Path, teller: Teller, progress_s: float) -> None:
        self._bridge = bridge
        self._teller = teller
        self._progress_s = progress_s
        choices = {f"webhook.{name}": of.choice for name, of in bridge.webhooks.items()}
        if bridge.mqtt is not None:
            choices[MQTT] = bridge.mqtt.choice
        self._spool = Spool(place, choices)
        self._mqtt = (
            None if bridge.mqtt is None else MqttSender(bridge.mqtt, bridge.name, self._spool, teller)
        )
        self._watcher = _Watcher(bridge, self._spool, self._mqtt, teller)
        queues = self._spool.queues
        self._deliveries = [
            _delivery(of, bridge.name, queues[f"webhook.{name}"], teller)
            for name, of in bridge.webhooks.items()
        ]
        if self._mqtt is not None:
            self._deliveries.append(Delivery(MQTT, queues[MQTT], self._mqtt, RETRY_S_MAX, teller))
        self._not_written = ""

    def run(self, end: Interrupt) -> int:
        """Run until the end is requested, and return the exit status."""
        if self._mqtt is not None:
            self._mqtt.start()
        for delivery in self._deliveries:
            delivery.start()
        self._teller.tell(f"the bridge {self._bridge.name} runs: {', '.join(self._spool.queues)}")
        try:
            self._look(end)
        finally:
            self._close()
        return 0

    def status(self) -> dict[str, Any]:
        """The status of the bridge."""
        return {
            "bridge": self._bridge.name,
            "edge": self._spool.conditions.get(EDGE, "answers"),
            "targets": {
                name: {
                    "delivered": queue.delivered,
                    "waiting": len(queue.events),
                    "dropped": queue.dropped_total,
                }
                for name, queue in self._spool.queues.items()
            },
        }

    def _look(self, end: Interrupt) -> None:
        self._watcher.start()
        shown_s = time.monotonic()
        while not end():
            self._write()
            self._watcher.check()
            now_s = time.monotonic()
            if self._progress_s and now_s - shown_s >= self._progress_s:
                shown_s = now_s
                self._tell_status()
            time.sleep(LOOK_S)

    def _write(self) -> None:
        try:
            self._spool.write()
        except OSError as error:
            if str(error) != self._not_written:
                self._not_written = str(error)
                self._teller.tell(f"the state cannot be written ({error}); events may be lost in a crash")
        else:
            self._not_written = ""

    def _tell_status(self) -> None:
        status = self.status()
        parts = [
            f"{name} delivered {of['delivered']}, waiting {of['waiting']}, dropped {of['dropped']}"
            for name, of in status["targets"].items()
        ]
        self._teller.show(status, f"edge {status['edge']}; {'; '.join(parts)}")

    def _close(self) -> None:
        self._watcher.stop()
        for delivery in self._deliveries:
            delivery.stop()
        self._spool.wake()
        for delivery in self._deliveries:
            delivery.join(2.0)
        self._write()
        self._tell_status()


class _Watcher:
    """Queries the edge on its own thread, because the edge may answer slowly, or hang."""

    def __init__(self, bridge: EventsBridge, spool: Spool, mqtt: MqttSender | None, teller: Teller) -> None:
        self._bridge = bridge
        self._spool = spool
        self._mqtt = mqtt
        self._teller = teller
        self._watch = Watch(spool)
        self._web = opened(bridge)
        self._listener = _Listener(bridge, spool, teller)
        self._answered_s = time.monotonic()
        self._failure = ""
        self._over = threading.Event()
        self._fault: Exception | None = None
        # The end does not wait for an answer of the edge.
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Start no further query."""
        self._over.set()
        self._thread.join(LOOK_S)

    def check(self) -> None:
        """Raise the error that ended the thread, so that the bridge ends too."""
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            self._look()
        except Exception as error:
            self._fault = error
        self._web.close()

    def _look(self) -> None:
        due_s = dict.fromkeys(("watch", "figures"), 0.0)
        heard = self._spool.last
        figures_s = self._bridge.mqtt.figures_s if self._bridge.mqtt is not None else WATCH_S
        while not self._over.is_set():
            now_s = time.monotonic()
            if heard != self._spool.last or (self._mqtt is not None and self._mqtt.is_new):
                # Publish figures at once after an event or a new connection.
                heard, due_s["figures"] = self._spool.last, 0.0
            if now_s >= due_s["watch"]:
                due_s["watch"] = now_s + (WATCH_S if self._see() else AGAIN_S)
            if self._mqtt is not None and now_s >= due_s["figures"]:
                due_s["figures"] = now_s + (figures_s if self._show(self._mqtt) else AGAIN_S)
            self._over.wait(LOOK_S)

    def _see(self) -> bool:
        """Check whether the edge answers, and return whether it does."""
        try:
            site = self._web.get("/api/v1/site")
            self._spool.begin(site["now_utc_ms"])
            self._listener.start()
            self._watch.answers(site["edge"], site["now_utc_ms"])
        except Error as error:
            self._missed(error)
            return False
        if self._failure:
            self._teller.tell("the edge answers again")
            self._failure = ""
        self._answered_s = time.monotonic()
        return True

    def _missed(self, error: Error) -> None:
        if str(error) != self._failure:
            self._failure = str(error)
            self._teller.tell(self._failure)
        if time.monotonic() - self._answered_s >= self._bridge.away_s:
            self._watch.away(time.time_ns() // 1_000_000, self._failure)

    def _show(self, mqtt: MqttSender) -> bool:
        try:
            mqtt.show(self._web.get("/api/v1/cameras")["cameras"])
        except Error:
            # `_see` reports it.
            if time.monotonic() - self._answered_s >= self._bridge.away_s:
                mqtt.away()
            return False
        return True


class _Listener:
    """Reads the edge's events on its own thread. If the stream ends, it continues after the last event."""

    def __init__(self, bridge: EventsBridge, spool: Spool, teller: Teller) -> None:
        self._bridge = bridge
        self._spool = spool
        self._teller = teller
        # It may wait long for an event, so the end does not wait for it.
        self._thread = threading.Thread(target=self._run, name="events of the edge", daemon=True)

    def start(self) -> None:
        """Begin, unless it has begun. The spool has the time from which on events are delivered."""
        if self._thread.ident is None:
            self._thread.start()

    def _run(self) -> None:
        web, said = opened(self._bridge), ""
        while True:
            try:
                edge = web.get("/api/v1/site")["edge"]
                for event in web.events(self._spool.last):
                    said = ""
                    if event is not None:
                        self._take(edge, dict(event))
            except ConnectError:
                # `_Watcher` reports it.
                said = ""
            except Error as error:
                if str(error) != said:
                    said = str(error)
                    self._teller.tell(f"events: {said}")
            time.sleep(AGAIN_S)

    def _take(self, edge: str, event: dict[str, Any]) -> None:
        known, since = event["id"], self._spool.since_utc_ms
        event["edge"], event["id"] = edge, f"{edge}-{known}"
        if event["kind"] == "missed" and event["state"] == "unknown":
            # It has the number of the previous event, which was delivered by itself.
            event["id"] = f"{edge}-missed-{known}"
            if self._spool.conditions.get(MISSED) != known:
                self._spool.take(event, condition=(MISSED, known), is_of_edge=True)
        elif since is not None and event["utc_ms"] < since:
            self._spool.skip(known)
        else:
            self._spool.take(event, last=known, is_of_edge=True)


def _delivery(of: Webhook, bridge: str, queue: Queue, teller: Teller) -> Delivery:
    return Delivery(f"webhook.{of.name}", queue, WebhookSender(of, bridge), of.retry_s_max, teller)


def opened(bridge: EventsBridge) -> Web:
    """A client of the bridge's edge."""
    return Web(bridge.web, keys=bridge.keys, edge=bridge.edge)
