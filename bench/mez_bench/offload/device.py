"""Plays devices: cameras whose frames go up, and displays that show the pictures that come back.

Reads a plan (`plans.Devices`) from its standard input, writes `ready` when all devices are connected, plays
after the next line of input, and answers with `plans.Played`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

import mez
from mez_bench.offload.plans import Captured, Devices, Got, Played

CONNECT_S_MAX: Final = 30.0
LOOK_S: Final = 0.2
"""How long a device waits for an answer before it checks whether the play is over."""

TOKEN_S_MAX: Final = 2.0
"""A token comes back after this time without an answer: its frame is taken for lost."""

LIT: Final = 180
"""If the middle of a picture has a mean value above this, the light is on."""

Picture: TypeAlias = Any
"""Pixels, or the bytes of a JPEG."""


class Tokens:
    """Tokens for the frames of a device that are in flight.

    An answer gives back the tokens of its own frame and of all earlier ones.

    Args:
        tokens_max: Number of tokens; `None`: no limit.
    """

    def __init__(self, tokens_max: int | None) -> None:
        self._max = tokens_max
        self._lock = threading.Lock()
        self._on_way: deque[tuple[int, float]] = deque()

    def take(self, captured_ns: int, now_s: float) -> bool:
        """Take a token for a frame; tell whether there was one."""
        if self._max is None:
            return True
        with self._lock:
            while self._on_way and now_s - self._on_way[0][1] > TOKEN_S_MAX:
                self._on_way.popleft()
            if len(self._on_way) >= self._max:
                return False
            self._on_way.append((captured_ns, now_s))
            return True

    def give_back(self, captured_ns: int) -> None:
        """Give back the tokens of an answered frame and of all frames before it."""
        with self._lock:
            while self._on_way and self._on_way[0][0] <= captured_ns:
                self._on_way.popleft()


class Device:
    """A camera and a display.

    Args:
        name: The camera's name.
        publisher: Publishes its frames.
        plan: The plan of all devices.
    """

    def __init__(self, name: str, publisher: mez.Publisher, plan: Devices) -> None:
        self._name = name
        self._publisher = publisher
        self._tokens = Tokens(plan.tokens)
        self._shows = bool(plan.flashes_s)
        self._answers = publisher.answers(answer_ms=plan.answer_ms)
        self._stopping = False
        self._failure: Exception | None = None
        self.captured: list[Captured] = []
        self.got: list[Got] = []
        self.skipped: dict[str, int] = {}
        self._thread = threading.Thread(target=self._take, name=f"display of {name}", daemon=True)
        self._thread.start()

    def capture(self, picture: Picture) -> None:
        """Publish a picture, now, if there is a token for it."""
        captured_ns = time.time_ns()
        is_sent = self._tokens.take(captured_ns, time.monotonic())
        self.captured.append(Captured(self._name, captured_ns, is_sent))
        if is_sent:
            self._publisher.send(picture, captured=captured_ns)

    def stop(self) -> None:
        """Take no more answers.

        Raises:
            Exception: The display failed. Otherwise its frames would count as not answered.
        """
        self._stopping = True
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self.skipped = dict(self._answers.skipped)
        self._answers.close()

    def _take(self) -> None:
        try:
            self._show()
        except Exception as error:
            self._failure = error

    def _show(self) -> None:
        while not self._stopping:
            try:
                answer = self._answers.next(timeout=LOOK_S)
            except mez.WaitTimeoutError:
                continue
            self._tokens.give_back(answer.captured_ns)
            # A display needs the pixels. They are decoded in every play, so that plays can be compared.
            image = answer.image
            is_lit = self._shows and bool(middle(image).mean() > LIT)
            self.got.append(Got(self._name, answer.captured_ns, dict(answer.ms), len(answer.payload), is_lit))


def middle(image: Any) -> Any:  # noqa: ANN401, arrays
    """Return the part of a picture that shows the light."""
    height, width = image.shape[:2]
    return image[height // 4 : height * 3 // 4, width // 4 : width * 3 // 4]


def lit(image: Any) -> Any:  # noqa: ANN401, arrays
    """Return a picture with the light on."""
    bright = image.copy()
    middle(bright)[:] = 255
    return bright


def is_on(flashes_s: Sequence[float], at_s: float) -> bool:
    """Tell whether the light is on."""
    return sum(flash_s <= at_s for flash_s in flashes_s) % 2 == 1


def _play(plan: Devices, devices: Sequence[Device], pictures: Sequence[Picture]) -> int:
    """Let each camera capture when it is due; return when the play began, by the host's clock."""
    lit_pictures = [lit(picture) for picture in pictures] if plan.flashes_s else []
    began_s, began_ns = time.monotonic(), time.time_ns()
    frames = round(plan.seconds * plan.fps)
    for number in range(frames):
        for place, device in enumerate(devices):
            # The cameras' phases are spread evenly.
            due_s = began_s + (number + place / len(devices)) / plan.fps
            if (left_s := due_s - time.monotonic()) > 0:
                time.sleep(left_s)
            of = lit_pictures if is_on(plan.flashes_s, time.monotonic() - began_s) else pictures
            device.capture(of[number % len(of)])
    time.sleep(min(1.0, plan.answer_ms / 1e3))
    return began_ns


def main() -> int:
    """Play one plan."""
    plan = Devices(**json.loads(sys.stdin.readline()))
    path = Path(plan.pictures)
    pictures = list(np.load(path)) if path.suffix == ".npy" else [path.read_bytes()]
    with ExitStack() as stack:
        devices = []
        for name in plan.cameras:
            publisher = stack.enter_context(
                mez.publisher(
                    name,
                    edge=plan.edge,
                    keys=plan.keys,
                    state=plan.state,
                    quality=plan.quality,
                    memory_bytes=16 << 20,
                )
            )
            devices.append(Device(name, publisher, plan))
            publisher.wait_connected(timeout=CONNECT_S_MAX)
        print("ready", flush=True)
        if not sys.stdin.readline():
            return 0
        began_ns = _play(plan, devices, pictures)
        for device in devices:
            device.stop()
        skipped: dict[str, int] = {}
        for device in devices:
            for reason, count in device.skipped.items():
                skipped[reason] = skipped.get(reason, 0) + count
        captured = [frame for device in devices for frame in device.captured]
        got = [answer for device in devices for answer in device.got]
        print(json.dumps(asdict(Played(began_ns, captured, got, skipped))), flush=True)
    # Threads of clients may not end by themselves.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
