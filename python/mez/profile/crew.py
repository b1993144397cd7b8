"""Measures many rungs in several worker processes."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import cv2

from mez.profile import app as apps
from mez.profile import coding
from mez.profile import footage as footages
from mez.profile import measure as measuring
from mez.profile.errors import ProfileError
from mez.profile.measure import NOISE, Measurement
from mez.profile.store import Store

REFERENCE = "original"
"""The name of the stored reference: the rung of published frames."""


@dataclass(frozen=True)
class Job:
    """The settings of a measurement.

    Attributes:
        videos: The videos. Each is one scene.
        app: The application, as in `--app`.
        strong: The strong threshold. `None`: the application's own.
        weak: The weak threshold. `None`: the application's own.
        cache: The folder of the cache.
        coders: Coders for rungs of other systems: from the first word of a rung's name to `MODULE:FUNCTION`.
        frames_max: The most frames that are encoded.
        h264_encoder: The H.264 encoder.
    """

    videos: tuple[Path, ...]
    app: str
    strong: float | None
    weak: float | None
    cache: Path
    coders: Mapping[str, str] = field(default_factory=dict)
    frames_max: int = footages.FRAMES_MAX
    h264_encoder: str = coding.H264_ENCODER


class Hand:
    """Measures rungs in this process."""

    def __init__(self, job: Job) -> None:
        # Several processes share the machine, so one thread each keeps times comparable.
        cv2.setNumThreads(1)
        self._coders = job.coders
        coding.require_encoder(job.h264_encoder)
        self.h264_encoder = job.h264_encoder
        self.app = apps.load(job.app, job.strong, job.weak)
        self.footage = footages.read_all(job.videos, job.cache, job.frames_max)
        self.store = Store(job.cache, self.footage, self.app, job.h264_encoder)

    def measure(self, rung: str, places: Sequence[int]) -> Measurement:
        """Measure a rung at least on these frames. Known results are reused."""
        known = self.store.get(rung)
        if known is not None and set(places) <= known.found.keys():
            return known
        if rung == REFERENCE:
            result = measuring.reference(self.footage, self.app, places, known)
        elif rung == NOISE:
            result = measuring.noisy(self.footage, self.app, places, known)
        else:
            coder = self._coders.get(rung.partition("/")[0])
            result = measuring.measure(rung, self.footage, self.app, places, known, coder, self.h264_encoder)
        self.store.put(result)
        return result


class Crew:
    """Several processes that measure, or one `Hand` in this process.

    Args:
        job: The settings.
        workers: Number of processes.
    """

    def __init__(self, job: Job, workers: int) -> None:
        self.lead = Hand(job)
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1:
            # The frames are in the cache now, and the other processes read them there.
            self._pool = ProcessPoolExecutor(
                workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(job,)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        if kind is not None:
            # Finished measurements are in the cache; unfinished ones are not worth waiting for.
            for process in list((self._pool._processes or {}).values()):
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def measure(
        self, rungs: Sequence[str], places: Sequence[int], done: Callable[[str], None] = lambda rung: None
    ) -> dict[str, Measurement]:
        """Measure rungs on these frames, and call `done` with each one."""
        results = {}
        for measurement in self._each(rungs, places):
            done(measurement.rung)
            results[measurement.rung] = measurement
        return results

    def spread(self, rung: str, places: Sequence[int], done: Callable[[int], None]) -> Measurement:
        """Measure independent frames in steps, and call `done` with the number of finished frames."""
        step = max(1, len(places) // 12)
        result = self.lead.measure(rung, places[:step])
        for upto in range(step, len(places) + step, step):
            result = self.lead.measure(rung, places[:upto])
            done(min(upto, len(places)))
        return result

    def _each(self, rungs: Sequence[str], places: Sequence[int]) -> Iterator[Measurement]:
        if self._pool is None:
            yield from (self.lead.measure(rung, places) for rung in rungs)
            return
        waiting: set[Future[Measurement]] = {self._pool.submit(_work, rung, list(places)) for rung in rungs}
        try:
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        except BrokenProcessPool as error:
            raise ProfileError(
                "a worker process died, maybe because memory was full; run the command again with fewer "
                "--workers (it continues from here)"
            ) from error


_hand: Hand | None = None


def _begin(job: Job) -> None:
    # Ctrl-C reaches all processes of the terminal; the main process ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    global _hand  # a process of the pool has no other place to keep it
    _hand = Hand(job)


def _work(rung: str, places: list[int]) -> Measurement:
    assert _hand is not None, "the pool runs _begin first"
    return _hand.measure(rung, places)
