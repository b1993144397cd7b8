"""The format of messages in topics. docs/bridge.md describes it for other languages.

Frames and data records have the envelope of a pipeline's record (`mez.pipeline.envelope`) as headers, and
further headers. So a stage of a pipeline can read the topic of a bridge. Results and events are JSON.
"""

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mez._frame import Frame
from mez._notes import Note
from mez.errors import DataError
from mez.pipeline import envelope, mez_bus
from mez.pipeline import record as records

JSON: Final = "application/json"


def _nothing() -> None:
    """The `done` of a message if no one needs to know."""


@dataclass(slots=True, eq=False)
class Message:
    """A message for a topic.

    Attributes:
        id: Its identity, which is the same if it is sent twice.
        key: The camera, which decides the partition.
        value: The bytes.
        headers: The headers.
        done: Called when the message is finished, by the thread that takes confirmations.
        is_retried: Whether Kafka has refused it before. Then it is sent alone.
    """

    id: str
    key: str
    value: bytes | memoryview
    headers: Mapping[str, str]
    done: Callable[[], None] = field(default=_nothing, repr=False)
    is_retried: bool = False

    @property
    def size(self) -> int:
        """Bytes of its value."""
        return len(self.value)


def of_frame(frame: Frame, bridge: str) -> Message:
    """A frame, or a data record, with its envelope if it has one."""
    try:
        record = mez_bus.opened(frame)
    except DataError:
        # A bridge copies the record as it is, even if its envelope is damaged.
        record = records.of_frame(frame)
    told = envelope.fields(record)
    if frame.content_type != envelope.ENVELOPE:
        # Of a derived stream, `record` has the identity of the frame that it was made of.
        told["mez-id"] = f"{frame.camera}@{frame.epoch}-{frame.sequence}"
    told |= {
        "mez-bridge": bridge,
        "mez-stream": frame.camera,
        "mez-encoding": frame.encoding,
        "mez-rung": frame.rung,
        "mez-contract-state": frame.contract.state,
        "mez-contract-reason": frame.contract.reason,
    }
    if frame.content_type is None:
        told["mez-size"] = f"{frame.width}x{frame.height}"
    if frame.expected_accuracy is not None:
        told["mez-expected-accuracy"] = f"{frame.expected_accuracy:.4g}"
    if frame.infeasible:
        told["mez-infeasible"] = "true"
    if frame.age_ms is not None:
        told["mez-age-ms"] = f"{frame.age_ms:.3f}"
    if frame.skipped:
        told["mez-skipped"] = _json(dict(frame.skipped)).decode()
    if frame.attempt > 1:
        told["mez-attempt"] = str(frame.attempt)
    return Message(told["mez-id"], record.camera, record.payload, told)


def of_result(note: Note, camera: str, place: tuple[int, int], bridge: str) -> Message:
    """A reply of an application to a frame."""
    reply = note.reply
    assert reply is not None, "the caller looked"
    told: dict[str, Any] = {
        "frame": f"{reply.frame.epoch}-{reply.frame.sequence}",
        "captured_ns": note.captured_ns,
        "noted_ns": note.noted_ns,
        "application": note.application,
    }
    if reply.detections is not None:
        told["detections"] = reply.json()
    else:
        try:
            told["result"] = reply.json()
        except ValueError:
            told["bytes_base64"] = base64.b64encode(reply.payload).decode()
    of_frame = {"mez-frame": told["frame"], "mez-application": note.application}
    if note.captured_ns is not None:
        of_frame["mez-captured-ns"] = str(note.captured_ns)
    return _plain("result", f"{camera}#{place[0]}-{place[1]}", camera, told, bridge, of_frame)


def of_event(note: Note, camera: str, place: tuple[int, int], bridge: str) -> Message:
    """A change of a contract, or of a camera's source."""
    told: dict[str, Any] = {"noted_ns": note.noted_ns}
    if note.contract is not None:
        kind = "contract"
        told |= {
            "application": note.application,
            "state": note.contract.state,
            "reason": note.contract.reason,
        }
    else:
        assert note.source is not None, "a note is a reply, a contract or a source"
        kind = "source"
        told |= {
            "state": note.source.state,
            "reason": note.source.reason,
            "lasts_s": note.source.lasts_s,
        }
    return _plain(kind, f"{camera}#{place[0]}-{place[1]}", camera, told, bridge)


def own_event(kind: str, camera: str | None, bridge: str, **told: Any) -> Message:  # noqa: ANN401, plain values
    """An event of the bridge itself, such as `lost`, about a camera or the whole bridge."""
    noted_ns = time.time_ns()
    name = f"{camera or bridge}#{bridge}-{noted_ns}"
    return _plain(kind, name, camera, {"noted_ns": noted_ns, **told}, bridge)


def dead_letter(message: Message, topic: str, error: str) -> Message:
    """A dead letter: headers and error of a message that Kafka refuses permanently, without its bytes."""
    told = {**message.headers, "mez-topic": topic, "mez-error": error, "mez-bytes": str(message.size)}
    return Message(message.id, message.key, b"", told, message.done)


def _plain(
    kind: str,
    name: str,
    camera: str | None,
    told: Mapping[str, Any],
    bridge: str,
    more: Mapping[str, str] | None = None,
) -> Message:
    value = _json({"kind": kind, "id": name, "camera": camera, "bridge": bridge, **told})
    headers = {
        "mez-id": name,
        "mez-bridge": bridge,
        "mez-camera": camera or "",
        "mez-kind": kind,
        "content-type": JSON,
        **(more or {}),
    }
    return Message(name, camera or bridge, value, headers)


def _json(told: object) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode()
