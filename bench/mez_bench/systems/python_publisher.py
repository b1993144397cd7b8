"""Publishes bursts as a user's Python program would. `bench/measure/src/stamp.rs` defines its commands.

Arguments: the camera's name, the edge's address, the folder of keys, the folder for state, the log's bytes.
"""

import json
import struct
import sys
import time
from pathlib import Path
from typing import Final

import mez

STAMP_AT: Final = 6
PREPARATION_NS_MAX: Final = 20_000_000


def main() -> None:
    """Publish until the standard input ends."""
    name, edge, keys, state, memory_bytes = sys.argv[1:]
    with mez.publisher(name, edge=edge, keys=keys, state=state, memory_bytes=int(memory_bytes)) as camera:
        camera.wait_connected(timeout=30)
        print("ready", flush=True)
        for line in sys.stdin:
            word, number, first_ns, interval_ns, frames, payload = line.split()
            assert word == "burst", "a publisher has no other command"
            plan = (int(number), int(first_ns), int(interval_ns), int(frames))
            print(json.dumps(_burst(camera, *plan, bytearray(Path(payload).read_bytes()))), flush=True)


def _burst(
    camera: mez.Publisher, number: int, first_ns: int, interval_ns: int, frames: int, payload: bytearray
) -> dict[str, object]:
    late_ns, call_ns = [], []
    for frame in range(frames):
        due_ns = first_ns + frame * interval_ns
        _sleep_until(due_ns - min(interval_ns, PREPARATION_NS_MAX) // 2)
        struct.pack_into("<QQQ", payload, STAMP_AT, number, frame, due_ns)
        made = bytes(payload)
        _sleep_until(due_ns)
        called_ns = time.monotonic_ns()
        camera.send(made)
        call_ns.append(time.monotonic_ns() - called_ns)
        late_ns.append(called_ns - due_ns)
    return {"burst": number, "late_ns": late_ns, "call_ns": call_ns}


def _sleep_until(due_ns: int) -> None:
    time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)


if __name__ == "__main__":
    main()
