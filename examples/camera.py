"""A camera that shows what a detector on another host found in its pictures.

    python camera.py dock/cam1 --edge edge.local
    python camera.py dock/cam2 --edge edge.local --source yard.mp4 --seconds 20

It publishes its pictures. Boxes that come back are drawn in the picture in which they were found, and
that is saved, as dock-cam1-boxes.jpg. It ends after --seconds, or with the video.
"""

import argparse
import time

import cv2

import mez

parser = argparse.ArgumentParser(description="Publish a camera, and draw the boxes that come back.")
parser.add_argument("camera", help="its name, such as dock/cam1")
parser.add_argument("--edge", help="the edge broker's host [this one]")
parser.add_argument("--source", default="0", help="number of a USB camera, or a video file [0]")
parser.add_argument("--seconds", type=float, default=60.0, help="when to end [60]")
options = parser.parse_args()

is_file = not options.source.isdigit()
video = cv2.VideoCapture(options.source if is_file else int(options.source))
# A file is played at its own speed. `read` of a camera waits for its next picture.
interval = 1 / video.get(cv2.CAP_PROP_FPS) if is_file else 0
pictures = {}  # those that were sent last, by frame
due = begin = time.monotonic()

with mez.publisher(options.camera, edge=options.edge) as camera:
    while time.monotonic() < begin + options.seconds:
        there_is_one, picture = video.read()
        if not there_is_one:
            # A file is over. A camera is lost: `mez cameras` says so, with this reason.
            raise SystemExit(0 if is_file else "the camera gives no pictures")
        pictures[camera.send(picture)] = picture
        if len(pictures) > 50:
            pictures.pop(next(iter(pictures)))  # the oldest, which has no reply
        due += interval
        while True:
            try:
                reply = camera.next_reply(timeout=max(0, due - time.monotonic()))
            except mez.WaitTimeoutError:
                break  # the next picture is due
            found = reply.detections
            if found and reply.frame in pictures:
                for left, top, right, bottom in found.xyxy.astype(int).tolist():
                    cv2.rectangle(pictures[reply.frame], (left, top), (right, bottom), (0, 255, 0), 2)
                cv2.imwrite(options.camera.replace("/", "-") + "-boxes.jpg", pictures[reply.frame])
                print(f"{options.camera}: frame {reply.frame} has {len(found)} boxes", flush=True)
