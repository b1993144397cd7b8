"""The compiled half of the package `mez`; import `mez` instead.

Everything here is described where the package uses it. Arguments are checked there as well: what is out of a
type's range is a plain `OverflowError` or `TypeError` here.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np
from typing_extensions import Buffer

from mez._frame import ContractState
from mez._source import SourceState

__all__ = [
    "PIXELS_MAX",
    "Arrival",
    "CameraRecord",
    "Client",
    "Coded",
    "Edge",
    "Ending",
    "Join",
    "Knobs",
    "Notice",
    "Payload",
    "Picture",
    "Publisher",
    "Stream",
    "Subscription",
    "__version__",
    "cli_main",
    "decode_into",
    "decode_overlay_into",
    "default_rungs",
    "draw_overlay",
    "encode_jpeg",
    "encode_png",
    "resize_into",
    "rung_facts",
]

__version__: Final[str]
"""Version of Mez, the same for the Rust crates and the Python package."""

PIXELS_MAX: Final[int]
"""The most pixels that an image may have in order to be decoded."""

# NumPy's own types say that arrays have the buffer protocol only from Python 3.12 on.
_Buffer: TypeAlias = Buffer | np.ndarray[Any, Any]

# Box, score, number and name of the class, tracker's number, mask (width, height, runs), key points.
_Detection: TypeAlias = tuple[
    list[float],
    float | None,
    int | None,
    str,
    int | None,
    tuple[int, int, list[int]] | None,
    list[tuple[float, float, float | None]],
]
# Width and height of the picture in whose pixels they are, and what was found.
_Detections: TypeAlias = tuple[tuple[int, int], list[_Detection]]
# A camera's source: state, reason, for how many seconds, in how many it is tried again.
_Source: TypeAlias = tuple[SourceState, str, float | None, float | None]
# Place (series, number), time, missing before, application, reply (frame, captured, payload,
# detections), contract, source.
_Note: TypeAlias = tuple[
    tuple[int, int],
    int,
    int,
    str,
    tuple[tuple[int, int], int | None, bytes, _Detections | None] | None,
    tuple[ContractState, str] | None,
    _Source | None,
]

# Epoch, sequence, capture time, kind, width and height, payload, boxes, seconds since the capture by stage,
# and what was not given before it by reason.
_AnswerParts: TypeAlias = tuple[
    int,
    int,
    int,
    Literal["picture", "overlay", "boxes"],
    list[tuple[int, int]],
    bytes,
    _Detections | None,
    list[tuple[str, float]],
    list[tuple[str, int]],
]

def cli_main(arguments: list[str], itself: list[str]) -> int: ...
def decode_into(encoding: str, payload: _Buffer, image: _Buffer) -> None: ...
def default_rungs(width: int, height: int, family: str) -> list[str]: ...
def encode_jpeg(image: _Buffer, quality: int) -> bytes: ...
def decode_overlay_into(png: bytes, image: _Buffer) -> None: ...
def draw_overlay(overlay: _Buffer, image: _Buffer) -> None: ...
def encode_png(image: _Buffer) -> bytes: ...
def resize_into(image: _Buffer, target: _Buffer) -> None: ...
def rung_facts(rung: str, width: int, height: int) -> tuple[tuple[int, int], bool, int]: ...

@final
class Payload(Buffer):
    def __len__(self) -> int: ...

@final
class Picture:
    shared: Final[bool]
    def show_into(self, image: _Buffer) -> None: ...

@final
class Arrival:
    accuracy_expected: Final[float | None]
    age_error_ms: Final[float | None]
    age_ms: Final[float | None]
    attempt: Final[int]
    camera: Final[str]
    captured_monotonic_ns: Final[int | None]
    captured_ns: Final[int]
    clock_source: Final[str]
    content_type: Final[str | None]
    contract_reason: Final[str]
    contract_state: Final[ContractState]
    encoding: Final[str]
    epoch: Final[int]
    height: Final[int]
    infeasible: Final[bool]
    link_bytes: Final[int | None]
    not_held: Final[tuple[int, int, str] | None]
    of: Final[tuple[str, int, int, int] | None]
    payload: Final[Payload]
    picture: Final[Picture | None]
    published_size: Final[tuple[int, int]]
    rung: Final[str]
    sequence: Final[int]
    skipped: Final[list[tuple[str, int]]]
    trace: Final[list[tuple[str, float]]]
    width: Final[int]

@final
class Coded:
    encoding: Final[str]
    height: Final[int]
    independent: Final[bool]
    outcome: Final[str]
    payload: Final[bytes]
    rung: Final[str | None]
    size_bytes: Final[int]
    width: Final[int]

@final
class Stream:
    def __new__(cls, rung: str, h264_encoder: str = "openh264") -> Stream: ...
    def decode_into(self, coded: Coded, image: _Buffer) -> None: ...
    def encode(self, image: _Buffer, captured_ns: int, bytes_max: int | None = None) -> Coded: ...
    def pass_over(self, coded: Coded) -> None: ...

@final
class CameraRecord:
    camera: Final[str]
    camera_log_bytes: Final[int]
    channel: Final[str | None]
    channel_bits_per_second: Final[float | None]
    clock_error_ms: Final[float | None]
    clock_offset_ns: Final[int | None]
    connected: Final[bool]
    contracts: Final[list[tuple[int, str, ContractState, str]]]
    crossed_bits_per_second: Final[float | None]
    source: Final[_Source | None]
    edge_log_bytes: Final[int]
    frames_cancelled: Final[int]
    frames_late: Final[int]
    frames_per_second: Final[float]
    frames_received: Final[int]
    frames_refused: Final[int]
    height: Final[int]
    derived_from: Final[list[str]]
    identity: Final[str]
    link_bits_per_second: Final[float | None]
    link_bytes: Final[int]
    newest: Final[tuple[int, int, int] | None]
    observed_on_time_share: Final[float | None]
    oldest_captured_ns: Final[int | None]
    predicted_on_time_share: Final[float | None]
    published: Final[int]
    publishers: Final[int | None]
    published_bits_per_second: Final[float | None]
    published_bytes: Final[int]
    refused: Final[int]
    round_trip_time_ms: Final[float | None]
    share_frame_bytes: Final[int | None]
    subscriptions: Final[int]
    width: Final[int]

@final
class Notice:
    camera: Final[str | None]
    kind: Final[str]
    reason: Final[str | None]
    source: Final[_Source | None]
    state: Final[ContractState | None]

@final
class Ending:
    rest: Final[list[tuple[str, list[tuple[str, int]], tuple[int, int, str] | None]]]

@final
class Client:
    def __new__(
        cls,
        edges: list[str],
        *,
        keys: str | PathLike[str] | None,
        application: str | None,
        patience: float | None,
    ) -> Client: ...
    @property
    def address(self) -> str: ...
    def answer(self, camera: str, epoch: int, sequence: int, image: object) -> None: ...
    def answer_boxes(
        self,
        camera: str,
        epoch: int,
        sequence: int,
        published: tuple[int, int],
        detections: _Detections,
    ) -> None: ...
    def answer_counts(self) -> tuple[int, int, int, int]: ...
    def answer_overlay(self, camera: str, epoch: int, sequence: int, image: object) -> None: ...
    def cameras(self, pattern: str | None = None) -> list[CameraRecord]: ...
    def flush_replies(self, timeout: float) -> bool: ...
    def forget_camera(self, camera: str) -> str | None: ...
    def notes(
        self, camera: str, since_ns: int | None, until_ns: int | None, after: tuple[int, int] | None
    ) -> tuple[list[_Note], bool]: ...
    def observable(self, pattern: str) -> list[CameraRecord] | None: ...
    def reply(self, camera: str, epoch: int, sequence: int, payload: bytes) -> None: ...
    def reply_detections(
        self,
        camera: str,
        epoch: int,
        sequence: int,
        published: tuple[int, int],
        detections: _Detections,
    ) -> None: ...
    def reply_counts(self) -> tuple[int, int, int, int]: ...
    def subscribe(
        self,
        pattern: str,
        *,
        since_ns: int | None,
        until_ns: int | None,
        latency_ms: float | None,
        accuracy: float | None,
        on_time_share: float,
        profile: bytes | None,
        profile_name: str | None,
        min_fps: float,
        on_infeasible: str,
        deliver: str | None,
        accept: Sequence[str] | None,
        priority: int,
        reconnect: bool,
        quality: str | None,
        held_only: bool,
        for_export: bool,
        resume: str,
        after: Sequence[tuple[str, int, int, int | None]],
        group: tuple[str, int, bool, bool, bool, float | None, int | None, int | None] | None,
    ) -> Subscription: ...

@final
class Subscription:
    @property
    def cameras(self) -> list[str]: ...
    def close(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def every(self) -> bool: ...
    def fileno(self) -> int: ...
    def leave(self, patience: float) -> None: ...
    def next(self, timeout: float | None = None) -> Arrival | Notice | Ending | None: ...
    def poll(self) -> Arrival | Notice | Ending | None: ...
    def update(
        self,
        *,
        latency_ms: float | None,
        accuracy: float | None,
        on_time_share: float,
        profile: bytes | None,
        profile_name: str | None,
        min_fps: float,
        on_infeasible: str,
        priority: int,
    ) -> None: ...
    def report_accuracy(self, camera: str, accuracy: float) -> None: ...
    def settle(self, camera: str, epoch: int, sequence: int, error: str | None) -> bool: ...

@final
class Knobs:
    def __new__(
        cls,
        knobs: Sequence[tuple[str, list[float], str | None, str | None, int | None]],
        skips: Sequence[int],
        function: str | None,
    ) -> Knobs: ...
    def close(self) -> None: ...
    def done(self, number: int, body: bytes | None, why: str | None) -> None: ...
    def next_call(self) -> tuple[int, bytes, str, list[tuple[str, float]]] | None: ...
    def open(self) -> None: ...
    def operate(self, rung: str, body: bytes, content_type: str) -> bytes: ...
    def rungs(self) -> list[str]: ...
    def values(self, rung: str) -> tuple[list[tuple[str, float]], int]: ...
    def wants_thread(self) -> bool: ...

@final
class Publisher:
    def __new__(
        cls,
        camera: str,
        *,
        edges: list[str],
        broker: str | None,
        keys: str | PathLike[str] | None,
        quality: int,
        memory_bytes: int,
        frame_bytes_max: int,
        state: str | PathLike[str] | None,
        link: str,
        h264_encoder: str,
        store: tuple[str, str | None, int, float | None, str, bool] | None,
        history_share: float,
        knobs: Knobs | None,
    ) -> Publisher: ...
    @staticmethod
    def at_edge(
        stream: str,
        *,
        of: list[str],
        edges: list[str],
        keys: str | PathLike[str] | None,
        quality: int,
        patience: float | None,
    ) -> Publisher: ...
    def answers_skipped(self) -> list[tuple[str, int]]: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def connected(self) -> bool: ...
    @property
    def dropped(self) -> int: ...
    @property
    def edge(self) -> str | None: ...
    def lost(self, reason: str) -> None: ...
    def next_answer(self, timeout: float | None = None) -> _AnswerParts | None: ...
    def next_reply(
        self, timeout: float | None = None
    ) -> tuple[int, int, str, bytes | None, _Detections | None] | None: ...
    @property
    def published(self) -> int: ...
    @property
    def refused(self) -> int: ...
    def send(self, image: object, captured_ns: int | None = None) -> tuple[int, int] | None: ...
    def send_data(
        self,
        payload: bytes,
        content_type: str,
        of: tuple[str, int, int, int] | None = None,
        captured_ns: int | None = None,
    ) -> tuple[int, int] | None: ...
    def take_answers(self, answer_s: float | None) -> None: ...
    def wait_connected(self, timeout: float | None = None) -> None: ...
    def wait_on_disk(self, epoch: int, sequence: int) -> tuple[str, str] | None: ...

@final
class Join:
    def __new__(
        cls,
        *,
        within: float,
        records: int,
        waiting_max: int,
        bytes_max: int,
        strange_after: float,
        past: bool,
    ) -> Join: ...
    @property
    def counts(self) -> tuple[int, int, int, int, int, int]: ...
    @property
    def due(self) -> float | None: ...
    def frame(self, camera: str, place: tuple[int, int, int], frame: object, size: int) -> None: ...
    def frames_ended(self) -> None: ...
    def poll(self) -> tuple[str, Any, list[Any], str | None] | None: ...
    def record(
        self, of: tuple[str, int, int, int] | None, published_ns: int, record: object, size: int
    ) -> None: ...
    def records_ended(self) -> None: ...
    @property
    def waiting(self) -> tuple[int, int, int]: ...
    @property
    def wants(self) -> tuple[bool, bool]: ...

@final
class Edge:
    def __new__(
        cls,
        *,
        keys: str | PathLike[str] | None,
        name: str | None,
        listen: str,
        grpc: str | None,
        web: str | None,
        socket: str | PathLike[str],
        memory_bytes: int,
        cameras_max: int,
        forget_after: float | None,
        frame_bytes_max: int,
        state: str | PathLike[str] | None,
        store: tuple[str, str | None, int, float | None, str, bool] | None,
        profiles: str | PathLike[str] | None,
        channels: Sequence[tuple[str, Sequence[str]]],
        rights: Sequence[tuple[str, str, str]] | None,
    ) -> Edge: ...
    def close(self) -> None: ...
    @property
    def grpc(self) -> str | None: ...
    @property
    def keys(self) -> Path: ...
    @property
    def link(self) -> str: ...
    @property
    def socket(self) -> Path: ...
    @property
    def web(self) -> str | None: ...
