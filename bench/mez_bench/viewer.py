"""Reads frames, while it is measured from outside: `viewer.py EDGE KEYS PROFILE EVERY [ENCODING…]`.

It writes `ready`, and answers every line of input with the frames since the line before. It decodes one of
EVERY frames; with an EVERY of 0, none.
"""

import json
import sys
import threading
from statistics import median

import mez

FLOOR = 0.9
LATENCY_MS = 150.0


class Viewer:
    """Reads frames, and decodes one of `every`; none if `every` is 0."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._lock = threading.Lock()
        self._frames: list[tuple[str, float, int]] = []

    def watch(self, frames: mez.Subscription) -> None:
        """Read frames until the subscription ends."""
        for number, frame in enumerate(frames):
            if self._every and number % self._every == 0:
                # Decodes the frame, as a detector would.
                frame.image.shape  # noqa: B018
            self._note(frame)

    def _note(self, frame: mez.Frame) -> None:
        with self._lock:
            self._frames.append((frame.encoding, frame.age_ms or 0.0, sum(frame.skipped.values())))

    def answer(self) -> dict[str, object]:
        """Return the figures of the frames since the last answer."""
        with self._lock:
            seen, self._frames = self._frames, []
        by_encoding = {name: sum(name == encoding for encoding, _, _ in seen) for name, _, _ in seen}
        ages = [age for _, age, _ in seen]
        return {
            "frames": len(seen),
            "encodings": by_encoding,
            "skipped": sum(skipped for _, _, skipped in seen),
            "age_ms_p50": median(ages) if ages else None,
            "ages_ms": ages,
        }


def main(edge: str, keys: str, profile: str, every: str, *accept: str) -> None:
    """Subscribe, and answer until standard input ends."""
    viewer = Viewer(int(every))
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
