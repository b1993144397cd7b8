"""A first try beside your own model, in one process: an edge broker, a camera, and OpenCV's people detector.

    python own_model.py street.mp4

You need no keys, and start no brokers. With real cameras, the edge and the publisher run elsewhere. Then the
program only needs `for frame in mez.subscribe("dock/*", edge="edge.local")`.
"""

import argparse

import cv2

import mez

parser = argparse.ArgumentParser(description="Find people in a video that goes through Mez.")
parser.add_argument("video", help="a video file")
parser.add_argument("--frames", type=int, default=20, help="when to end, if not with the video [20]")
options = parser.parse_args()

# Your own model takes the place of these lines. ONNX Runtime takes frame.tensor("numpy")[None].
model = cv2.HOGDescriptor()
model.setSVMDetector(cv2.HOGDescriptor.getDefaultPeopleDetector())

video = cv2.VideoCapture(options.video)
with mez.edge() as edge, mez.publisher("dock/cam1", edge=edge) as camera, edge.subscribe("dock/*") as frames:
    camera.wait_connected(timeout=30)
    while frames.delivered < options.frames:
        there_is_one, picture = video.read()
        if not there_is_one:
            break
        camera.send(picture)
        try:
            frame = frames.next(timeout=1)
        except mez.WaitTimeoutError:
            continue  # published before the camera knew of the subscription
        boxes, _ = model.detectMultiScale(frame.image)
        frame.reply([(x, y, x + width, y + height) for x, y, width, height in boxes])
        came_back = camera.next_reply(timeout=30).detections
        print(f"{frame}: {len(came_back or [])} boxes came back to the camera", flush=True)
