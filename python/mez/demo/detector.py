"""Runs the detector on the newest frames, on one thread of the lowest priority."""

import os
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
import numpy.typing as npt

import mez
from mez.apps.boxes import Box
from mez.profile.app import App

NICE: Final = 19
"""Priority of the detector's thread: the lowest. Detection must not delay frames."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The detector's result on one frame.

    Attributes:
        camera: The frame's camera.
        epoch: The frame's epoch.
        sequence: The frame's number in it.
        image: The frame's pixels: uint8, shape (height, width, 3) in blue, green, red.
        boxes: The boxes found: people, if the detector is the demo's own.
        age_ms: Age of the frame when the application got it, in milliseconds; `None` if unknown.
        detector_ms: Milliseconds that the detector took.
        at_s: When it was done, by `time.monotonic`.
        note: Text below its picture instead of epoch and age; empty: epoch and age.
    """

    camera: str
    epoch: int
    sequence: int
    image: npt.NDArray[np.uint8]
    boxes: tuple[Box, ...]
    age_ms: float | None
    detector_ms: float
    at_s: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class DetectorTotals:
    """Counts of the detector so far.

    Attributes:
        frames: Frames searched, by camera.
        detections: Boxes found in them, by camera.
        latest: Boxes in the newest frame searched, by camera.
        detector_ms_p50: Median of the milliseconds per frame; `None` before the first.
    """

    frames: Mapping[str, int]
    detections: Mapping[str, int]
    latest: Mapping[str, int]
    detector_ms_p50: float | None


class Detector:
    """Searches the newest frame of each camera in turn; it skips frames for which it has no time.

    Args:
        app: The detector.
        keep: Called, on the detector's thread, with everything it finds.
    """

    def __init__(self, app: App, keep: Callable[[Finding], None]) -> None:
        self._app = app
        self._keep = keep
        self._changed = threading.Condition()
        # At most one frame per camera; the camera that waits longest comes first.
        self._newest: OrderedDict[str, tuple[mez.Frame, npt.NDArray[np.uint8], float | None]] = OrderedDict()
        self._stopping = False
        self._frames: dict[str, int] = {}
        self._detections: dict[str, int] = {}
        self._latest: dict[str, int] = {}
        self._detector_ms: array[float] = array("d")
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="detector", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, frame: mez.Frame, image: npt.NDArray[np.uint8], age_ms: float | None) -> None:
        """Give it a frame, which replaces an older one of the same camera."""
        with self._changed:
            self._newest[frame.camera] = (frame, image, age_ms)
            self._changed.notify()

    def stop(self, seconds_max: float = 5.0) -> None:
        """Let it finish the frame at hand, and end the thread."""
        with self._changed:
            self._stopping = True
            self._newest.clear()
            self._changed.notify()
        self._thread.join(seconds_max)

    def totals(self) -> DetectorTotals:
        """Return what it has done so far."""
        with self._changed:
            return DetectorTotals(
                frames=dict(self._frames),
                detections=dict(self._detections),
                latest=dict(self._latest),
                detector_ms_p50=float(np.median(self._detector_ms)) if self._detector_ms else None,
            )

    def _run(self) -> None:
        # On Linux a thread has a priority of its own, and its native number is what setpriority takes.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        cv2.setNumThreads(1)
        try:
            while (taken := self._next()) is not None:
                self._search(*taken)
        except BaseException as error:
            self.failure = error
            raise

    def _next(self) -> tuple[mez.Frame, npt.NDArray[np.uint8], float | None] | None:
        with self._changed:
            while not self._newest and not self._stopping:
                self._changed.wait()
            if self._stopping:
                return None
            return self._newest.popitem(last=False)[1]

    def _search(self, frame: mez.Frame, image: npt.NDArray[np.uint8], age_ms: float | None) -> None:
        began = time.perf_counter()
        what = f"frame {frame.id} of {frame.camera}"
        boxes = self._app.strong(image, what, frame.published_size)
        detector_ms = (time.perf_counter() - began) * 1000
        frame.reply(boxes)
        with self._changed:
            self._frames[frame.camera] = self._frames.get(frame.camera, 0) + 1
            self._detections[frame.camera] = self._detections.get(frame.camera, 0) + len(boxes)
            self._latest[frame.camera] = len(boxes)
            self._detector_ms.append(detector_ms)
        self._keep(
            Finding(
                camera=frame.camera,
                epoch=frame.epoch,
                sequence=frame.sequence,
                image=image,
                boxes=tuple(boxes),
                age_ms=age_ms,
                detector_ms=detector_ms,
                at_s=time.monotonic(),
            )
        )
