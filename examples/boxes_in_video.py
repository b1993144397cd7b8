"""Draws what was found into an exported video: gate.mp4 and gate.mp4.jsonl make gate-boxes.mp4.

    mez store export gate/cam1 gate.mp4 --store /var/lib/mez/store --since -10m
    python boxes_in_video.py gate.mp4

Frames that the detector skipped show the boxes of the last frame that it searched.
"""

import argparse
import json
from pathlib import Path

import cv2

parser = argparse.ArgumentParser(description="Draw what was found into an exported video.")
parser.add_argument("video", type=Path, help="the video; what was found is in the file VIDEO.jsonl")
recording = parser.parse_args().video

lines = [json.loads(line) for line in Path(f"{recording}.jsonl").read_text().splitlines()]
results = [line for line in lines if "detections" in line and "video_seconds" in line]
results.sort(key=lambda line: line["video_seconds"], reverse=True)

video = cv2.VideoCapture(str(recording))
width, height = (int(video.get(side)) for side in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
output = str(recording.with_name(f"{recording.stem}-boxes.mp4"))
codec = cv2.VideoWriter.fourcc(*"mp4v")
drawn = cv2.VideoWriter(output, codec, video.get(cv2.CAP_PROP_FPS), (width, height))
shown = None
while True:
    there_is_one, picture = video.read()
    if not there_is_one:
        break
    while results and results[-1]["video_seconds"] * 1000 <= video.get(cv2.CAP_PROP_POS_MSEC) + 1:
        shown = results.pop()
    for found in shown["detections"] if shown else []:
        # Boxes are in the pixels of the frame as it was published.
        left, top, right, bottom = (round(side * width / shown["width"]) for side in found["xyxy"])
        cv2.rectangle(picture, (left, top), (right, bottom), (0, 255, 0), 2)
    drawn.write(picture)
drawn.release()
print(f"wrote {output}")
