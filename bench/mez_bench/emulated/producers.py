"""Plays cameras with their ingestion and detection: a process that puts records onto the bus of a pipeline.

Reads a line of JSON for each round (`Plan`), plays it, and answers with a line of JSON (`Played`). Latency
counts from the time when a frame is due, even if it begins late because the frame before was not confirmed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from mez import FrameId
from mez.pipeline import Hop, Record, buses, file
from mez.pipeline import record as records
from mez.pipeline.bus import Writer

STAGE = "detect"


@dataclass(frozen=True, slots=True)
class Plan:
    """A round.

    Attributes:
        number: Number of the round, from 1; also the epoch of its frames.
        begin_s: When it begins, in seconds of the monotonic clock.
        due_s: When each frame of each camera is due, in seconds from the beginning.
        work_ms: How long identification takes for each frame of each camera.
        ingestion_s: How long ingestion takes.
        detection_s: How long detection takes.
        ai_share: AI's share of detection.
        payload_bytes: Size of a face.
    """

    number: int
    begin_s: float
    due_s: dict[str, list[float]]
    work_ms: dict[str, list[float]]
    ingestion_s: float
    detection_s: float
    ai_share: float
    payload_bytes: int


@dataclass(slots=True)
class Played:
    """How a round went.

    Attributes:
        sent: Records that the bus has confirmed.
        late_ms_max: The longest time from when a frame was due until it began.
        failed: Why records were not sent.
    """

    sent: int
    late_ms_max: float
    failed: list[str]


class Camera:
    """A camera with its ingestion and detection, in a thread of its own."""

    def __init__(self, name: str, writer: Writer) -> None:
        self._name = name
        self._writer = writer
        self.sent = 0
        self.late_s_max = 0.0
        self.failed = ""

    def play(self, plan: Plan, payload: bytes) -> None:
        """Send a face for each frame."""
        self.sent, self.late_s_max, self.failed = 0, 0.0, ""
        try:
            for number, due_s in enumerate(plan.due_s[self._name]):
                self._frame(plan, number, plan.begin_s + due_s, payload)
                self.sent += 1
        except Exception as error:
            self.failed = f"{self._name}: {error!r}"

    def _frame(self, plan: Plan, number: int, due_s: float, payload: bytes) -> None:
        _sleep_until(due_s)
        begin_s = time.monotonic()
        self.late_s_max = max(self.late_s_max, begin_s - due_s)
        frame = FrameId(plan.number, number)
        at = {"captured": round(due_s * 1e9)}
        wall_ns = records.wall_ns()
        start = Record(
            id=f"{self._name}@{frame.epoch}-{frame.sequence}",
            camera=self._name,
            frame=frame,
            captured_ns=at["captured"] + wall_ns,
            payload=memoryview(b""),
            content_type="image/jpeg",
            hops=(Hop("camera", "", records.clock(), wall_ns, at, 0, 0, 0),),
        )
        records.begin(start)
        _sleep_until(begin_s + plan.ingestion_s)
        start.mark("ingested")
        _sleep_until(begin_s + plan.ingestion_s + plan.detection_s * plan.ai_share)
        start.mark("ai.detected")
        _sleep_until(begin_s + plan.ingestion_s + plan.detection_s)
        headers = {"work-ms": f"{plan.work_ms[self._name][number]:.3f}"}
        face = start.derive(payload, content_type="image/jpeg", headers=headers)
        self._writer.send([records.finish(start, face, STAGE, 0, f"producer-{self._name}")])


def _sleep_until(at_s: float) -> None:
    while (left_s := at_s - time.monotonic()) > 0:
        time.sleep(left_s)


def main(path: Path, names: list[str]) -> int:
    """Play rounds until the standard input ends."""
    pipeline = file.read(path)
    bus = buses.of(pipeline, pipeline.stages[STAGE].bus)
    cameras = [Camera(name, bus.writer(STAGE)) for name in names]
    print("ready", flush=True)
    for line in sys.stdin:
        plan = Plan(**json.loads(line))
        # Random, because a camera's pictures cannot be compressed further.
        payload = os.urandom(plan.payload_bytes)
        threads = [threading.Thread(target=camera.play, args=(plan, payload)) for camera in cameras]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        played = Played(
            sum(camera.sent for camera in cameras),
            max(camera.late_s_max for camera in cameras) * 1000,
            [camera.failed for camera in cameras if camera.failed],
        )
        print(json.dumps(asdict(played)), flush=True)
    # Threads of clients may not end by themselves.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
