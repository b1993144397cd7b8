"""Plays an engine: answers frames with pictures. Its compute is emulated by a wait.

Reads a plan (`plans.Engine`) from its standard input, writes `ready` when it has subscribed, and answers each
further line with the frames that it answered since the line before (`plans.Worked`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import mez
from mez import _native
from mez_bench.offload.plans import Engine, Worked

PIXELS: Final = "pixels"
"""Answers of an engine that decodes the frames: their pixels."""


class Worker:
    """Answers frames on a thread of its own."""

    def __init__(self, plan: Engine) -> None:
        self._plan = plan
        self._jpeg = b"" if plan.answer == PIXELS else Path(plan.answer).read_bytes()
        options: dict[str, Any] = {"profile": plan.profile} if plan.profile else {}
        if plan.group is not None:
            options |= {"group": plan.group, "fresh": plan.fresh}
        self._frames = mez.subscribe(
            plan.pattern,
            edge=plan.edge,
            latency_ms=plan.latency_ms,
            accuracy=plan.accuracy,
            deliver="every" if plan.every else "newest",
            **options,
        )
        self.worked: list[Worked] = []
        self.failure: BaseException | None = None
        threading.Thread(target=self._work, name="engine", daemon=True).start()

    def _work(self) -> None:
        try:
            for frame in self._frames:
                self.worked.append(self._answer(frame))
        except BaseException as failure:
            self.failure = failure

    def _answer(self, frame: mez.Frame) -> Worked:
        plan = self._plan
        got_ns = time.time_ns()
        image: Any = self._jpeg or frame.image
        decoded_ns = time.time_ns()
        if plan.compute_ms:
            time.sleep(plan.compute_ms / 1e3)
        computed_ns = time.time_ns()
        if plan.quality is not None and not self._jpeg:
            image = _native.encode_jpeg(image, plan.quality)
        frame.answer(image)
        answered_ns = time.time_ns()
        return Worked(
            frame.camera,
            frame.captured_ns,
            got_ns,
            decoded_ns,
            computed_ns,
            answered_ns,
            len(frame.payload),
        )


def main() -> int:
    """Play one plan until the standard input ends."""
    worker = Worker(Engine(**json.loads(sys.stdin.readline())))
    print("ready", flush=True)
    told = 0
    for _ in sys.stdin:
        if worker.failure is not None:
            raise worker.failure
        worked = worker.worked[told:]
        told += len(worked)
        print(json.dumps([asdict(one) for one in worked]), flush=True)
    # Threads of clients may not end by themselves.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
