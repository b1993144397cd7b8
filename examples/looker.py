"""Saves what the cameras show, without any effect on applications that have a contract.

    python looker.py 'dock/*' --edge edge.local

It gives no accuracy floor. So it gets the frames that the contracts need: the camera sends no frame twice or
at a higher quality for it. Without a contract on the camera, it gets originals.
"""

import argparse

import mez

parser = argparse.ArgumentParser(description="Save the newest picture of each camera, and say what it is.")
parser.add_argument("cameras", help="a name or a pattern, such as 'dock/*'")
parser.add_argument("--edge", help="the edge broker's host [this one]")
parser.add_argument("--frames", type=int, default=50, help="when to end [50]")
options = parser.parse_args()

with mez.subscribe(options.cameras, edge=options.edge, timeout=10, for_export=True) as frames:
    for frame in frames:
        width, height = frame.published_size
        print(f"{frame.camera}: frame {frame.id}, {frame.rung} of {width}x{height}", flush=True)
        frame.save(f"{frame.camera.replace('/', '-')}.jpg")
        if frames.delivered == options.frames:
            break
