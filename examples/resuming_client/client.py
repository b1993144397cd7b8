#!/usr/bin/env python3
"""A client that accounts for every frame, whether the edge, the camera or the client itself is restarted.

    client.py --broker unix:///run/mez/edge.sock 'dock/*' --state last.json          missed frames are counted
    client.py --broker unix:///run/mez/edge.sock 'dock/*' --state last.json --fill   missed frames are fetched

It uses only ``mez.proto`` and gRPC. A client in any language does the same:

1. It keeps the identity (epoch, sequence) and capture time of each camera's last frame, here in a file.
2. Whenever the stream ends, it subscribes again and names the frames that it has (`after`).
3. It checks that delivered + skipped = published. `not_held` names stretches of time that cannot be counted.

It prints a JSON object for each frame, each stretch of time that is not held, and each loss of the edge.
"""
# The code that is generated at the start has no types for a checker.
# ruff: noqa: ANN401

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "foreign_client"))
from client import PROTO, connect, generate, say

# The pause before the next try to reach a lost edge, in seconds.
REDIAL_S = 0.25


class Last:
    """The last frame of each camera, stored on disk."""

    def __init__(self, path: Path) -> None:
        """Reads the frames of an earlier start of this program."""
        self.path = path
        self.frames: dict[str, list[int]] = json.loads(path.read_text()) if path.exists() else {}

    def follows(self, frame: Any) -> bool:
        """Whether the frame comes after the last one; numbers alone decide."""
        last = self.frames.get(frame.camera)
        return last is None or [frame.epoch, frame.sequence] > last[:2]

    def keep(self, frame: Any) -> None:
        """Stores a frame, atomically: the file is complete even if the program is killed."""
        self.frames[frame.camera] = [frame.epoch, frame.sequence, frame.captured_utc_ns]
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.frames))
        new.replace(self.path)

    def messages(self, messages: Any) -> list[Any]:
        """The last frames as messages for the edge."""
        return [
            messages.LastFrame(camera=camera, epoch=epoch, sequence=sequence, captured_utc_ns=captured)
            for camera, (epoch, sequence, captured) in self.frames.items()
        ]


def stretch(messages: Any, camera: str, not_held: Any) -> None:
    """Prints a time span whose frames cannot be counted."""
    reason = messages.NotHeldReason.Name(not_held.reason).removeprefix("NOT_HELD_REASON_").lower()
    say(
        event="not_held",
        camera=camera,
        since=not_held.begin_utc_ns,
        until=not_held.end_utc_ns,
        reason=reason,
    )


def subscribe(arguments: argparse.Namespace, messages: Any, stubs: Any, last: Last) -> None:
    """Reads until the edge is lost."""
    request = messages.SubscribeRequest(
        pattern=arguments.pattern,
        application="resuming_client",
        resume=messages.RESUME_FILL if arguments.fill else messages.RESUME_NEWEST,
        deliver=messages.DELIVER_EVERY,
        after=last.messages(messages),
    )
    for event in stubs.EdgeBrokerStub(connect(arguments)).Subscribe(request):
        kind = event.WhichOneof("event")
        if kind != "frame":
            continue
        frame = event.frame
        if frame.HasField("not_held"):
            stretch(messages, frame.camera, frame.not_held)
        # Within an epoch, the sequence numbers show how many frames are missing. This equals `skipped`.
        skipped = {messages.SkipReason.Name(each.reason): each.count for each in frame.skipped}
        if not last.follows(frame):
            # The camera has lost its epoch counter and counts from the start, as `not_held` above reports.
            last.frames.pop(frame.camera)
        # Process the frame before it is stored: a stored frame does not come again.
        captured = frame.captured_utc_ns
        say(
            event="frame",
            camera=frame.camera,
            epoch=frame.epoch,
            sequence=frame.sequence,
            captured=captured,
            skipped=skipped,
        )
        last.keep(frame)


def main() -> None:
    """Reads the command line, and subscribes again and again."""
    parser = argparse.ArgumentParser(description="A client that knows of every frame.")
    parser.add_argument("pattern", help="which cameras, such as 'dock/*'")
    parser.add_argument("--broker", required=True, help="unix:///PATH or HOST:PORT")
    parser.add_argument("--authority", type=Path, help="the site's authority.pem (over TCP)")
    parser.add_argument("--identity", type=Path, help="an identity of the site (over TCP)")
    parser.add_argument("--state", type=Path, required=True, help="the file with the last frames")
    parser.add_argument("--fill", action="store_true", help="fetch what is missing")
    parser.add_argument("--proto", type=Path, default=PROTO, help="the path of mez.proto")
    arguments = parser.parse_args()
    messages, stubs = generate(arguments.proto)
    last = Last(arguments.state)
    while True:
        try:
            subscribe(arguments, messages, stubs, last)
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                say(event="error", code=error.code().name, message=error.details())
                sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(130)
        say(event="lost")
        time.sleep(REDIAL_S)


if __name__ == "__main__":
    main()
