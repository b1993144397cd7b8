"""Two subscriptions in one program, with asyncio: one counts people, the other keeps an album.

    python two_subscriptions.py 'dock/*' --edge edge.local --seconds 60

The first has a contract. The second has none, and gets the same frames as the first one, at no extra cost.
"""

import argparse
import asyncio

import mez
from mez.apps import pedestrian_hog

parser = argparse.ArgumentParser(description="Count people, and save a picture of each camera now and then.")
parser.add_argument("cameras", help="a name or a pattern, such as 'dock/*'")
parser.add_argument("--edge", help="the edge broker's host [this one]")
parser.add_argument("--seconds", type=float, default=60.0, help="when to end [60]")
parser.add_argument("--every", type=float, default=5.0, help="seconds from one picture to the next [5]")
options = parser.parse_args()


async def count() -> None:
    """Count the people of each frame, on a thread, so that the other task goes on meanwhile."""
    contract = {"latency_ms": 500, "accuracy": 0.9, "profile": "pedestrian-hog-vtest"}
    async for frame in mez.subscribe(options.cameras, edge=options.edge, **contract):
        strong, size = pedestrian_hog.STRONG, frame.published_size
        people = await asyncio.to_thread(pedestrian_hog.detect, frame.image, strong, size)
        print(f"{frame.camera}: {len(people)} people at {frame.captured:%H:%M:%S.%f}", flush=True)


async def album() -> None:
    """Save a picture of each camera every few seconds."""
    saved: dict[str, int] = {}
    async for frame in mez.subscribe(options.cameras, edge=options.edge, for_export=True):
        if frame.captured_ns >= saved.get(frame.camera, 0) + options.every * 1e9:
            saved[frame.camera] = frame.captured_ns
            frame.save(f"{frame.camera.replace('/', '-')}-{frame.captured:%H%M%S}.jpg")


async def main() -> None:
    """Do both until the time is over."""
    try:
        async with asyncio.timeout(options.seconds), asyncio.TaskGroup() as tasks:
            tasks.create_task(count())
            tasks.create_task(album())
    except TimeoutError:
        print("the time is over")


asyncio.run(main())
