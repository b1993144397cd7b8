"""Finds people in the newest frames of all cameras that match, and sends the boxes back to each camera.

    python detector.py 'dock/*' --edge edge.local --accuracy 0.9

With --accuracy, frames may be compressed as long as the detector keeps this accuracy, by the profile that
comes with Mez. Without it, frames come as they were published. It ends if no frame has come for 10 seconds.
"""

import argparse

import mez
from mez.apps import pedestrian_hog

parser = argparse.ArgumentParser(description="Find people, and tell the cameras.")
parser.add_argument("cameras", help="a name or a pattern, such as 'dock/*'")
parser.add_argument("--edge", help="the edge broker's host [this one]")
parser.add_argument("--accuracy", type=float, help="the accuracy floor, 0 to 1 [none]")
options = parser.parse_args()

contract = {"latency_ms": 300, "accuracy": options.accuracy, "profile": "pedestrian-hog-vtest"}
try:
    for frame in mez.subscribe(options.cameras, edge=options.edge, timeout=10, **contract):
        people = pedestrian_hog.detect(frame.image, pedestrian_hog.STRONG, frame.published_size)
        frame.reply(people)  # the camera gets the boxes in the pixels of its own picture
        print(f"{frame.camera}: {len(people)} people, {frame.rung}, {frame.contract}", flush=True)
except mez.WaitTimeoutError as nothing_more:
    print(nothing_more)
