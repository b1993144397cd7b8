"""Does the work of one stage of a recognition pipeline again and again, on given processors.

Reads a line of JSON (`Plan`), and writes `ready` when networks and frames are loaded. Then it answers each
line, a number of seconds, with the milliseconds of each frame: `{"ms": [...]}`.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

DETECT_FACES: Final = "detect faces"
EMBED: Final = "embed faces"
DETECT_OBJECTS: Final = "detect objects"
STAGES: Final = (DETECT_FACES, EMBED, DETECT_OBJECTS)

FRAMES: Final = 24
"""Number of frames that take turns."""
QUALITY: Final = 90
"""JPEG quality of the frames."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process does.

    Attributes:
        stage: One of `STAGES`.
        processors: The processors that it may use. It has as many threads, where a library can use them.
        video: The video with objects.
    """

    stage: str
    processors: Sequence[int]
    video: str


def _work(plan: Plan) -> tuple[Callable[[Any], object], list[Any]]:
    """Return the work, which takes an input, and the inputs."""
    # Imported after the processors were set: libraries count them when they are loaded.
    import cv2
    import numpy as np

    from mez import _native
    from mez.apps import dlib_faces, nanodet
    from mez.demo import photographs

    threads = len(plan.processors)
    cv2.setNumThreads(threads)

    def decoded(jpeg: bytes) -> Any:  # noqa: ANN401, an array
        return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)

    work: Callable[[Any], object]
    if plan.stage == DETECT_OBJECTS:
        detector = nanodet.Detector(threads=threads)
        video = cv2.VideoCapture(plan.video)
        pictures = [video.read()[1] for _ in range(FRAMES)]
        work = detector.detect
    else:
        finder = dlib_faces.Finder()
        # Not every frame shows a face.
        shown = (one.image for one in photographs.faces(0))
        faces = ((image, finder.find(image)) for image in shown)
        with_face = itertools.islice(((image, of[0].thumbnail) for image, of in faces if of), FRAMES)
        place = 0 if plan.stage == DETECT_FACES else 1
        pictures = [pair[place] for pair in with_face]
        work = finder.find if plan.stage == DETECT_FACES else dlib_faces.Embedder().embed
    jpegs = [_native.encode_jpeg(picture, QUALITY) for picture in pictures]
    return lambda jpeg: work(decoded(jpeg)), jpegs


def main() -> int:
    """Work until the standard input ends."""
    plan = Plan(**json.loads(sys.stdin.readline()))
    os.sched_setaffinity(0, plan.processors)
    work, inputs = _work(plan)
    for one in inputs[:3]:
        work(one)
    print("ready", flush=True)
    turns = itertools.cycle(inputs)
    for line in sys.stdin:
        took_ms: list[float] = []
        end_s = time.monotonic() + float(line)
        while (begun_s := time.monotonic()) < end_s:
            work(next(turns))
            took_ms.append((time.monotonic() - begun_s) * 1000)
        print(json.dumps({"ms": took_ms}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
