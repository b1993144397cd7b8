"""Looks at frames, while it is measured from outside: `viewer.py EDGE KEYS PROFILE [ENCODING…]`.

It says `ready`, and answers every line with what came since the line before.
"""

import json
import sys
import threading
from statistics import median

import mez

FLOOR = 0.9
LATENCY_MS = 150.0


class Viewer:
    """Looks at every frame that it gets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: list[tuple[str, float, int]] = []

    def watch(self, frames: mez.Subscription) -> None:
        """Look at the pixels of all that comes."""
        for frame in frames:
            self._look(frame)

    def _look(self, frame: mez.Frame) -> None:
        # What a detector would do first.
        frame.image.shape  # noqa: B018
        with self._lock:
            self._frames.append((frame.encoding, frame.age_ms or 0.0, sum(frame.skipped.values())))

    def answer(self) -> dict[str, object]:
        """Return what came since the last answer."""
        with self._lock:
            seen, self._frames = self._frames, []
        by_encoding = {name: sum(name == encoding for encoding, _, _ in seen) for name, _, _ in seen}
        ages = [age for _, age, _ in seen]
        return {
            "frames": len(seen),
            "encodings": by_encoding,
            "skipped": sum(skipped for _, _, skipped in seen),
            "age_ms_p50": median(ages) if ages else None,
        }


def main(edge: str, keys: str, profile: str, *accept: str) -> None:
    """Subscribe, and answer until nobody asks."""
    viewer = Viewer()
    with mez.subscribe(
        "**",
        edge=edge,
        keys=keys,
        accept=accept or None,
        latency_ms=LATENCY_MS,
        accuracy=FLOOR,
        profile=profile,
    ) as frames:
        threading.Thread(target=viewer.watch, args=(frames,), daemon=True).start()
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(viewer.answer()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
