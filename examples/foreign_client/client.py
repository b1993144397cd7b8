#!/usr/bin/env python3
"""A client of Mez that shares no code with Mez: grpcio-tools generates all it needs from ``mez.proto``.

    client.py publish   --broker unix:///run/mez/camera.sock --frames 100 --fps 15
    client.py publish   --broker unix:///run/mez/camera.sock --jpeg picture.jpg
    client.py subscribe --broker unix:///run/mez/edge.sock 'dock/*' --frames 50
    client.py subscribe --broker edge.local:7651 --authority authority.pem --identity app+viewer.pem 'dock/*'
    client.py derive    --broker unix:///run/mez/edge.sock dock/cam1 dock/cam1/sizes --frames 50
    client.py answers   --broker unix:///run/mez/camera.sock --bound-ms 200
    client.py cameras   --broker unix:///run/mez/edge.sock

It prints one JSON object per line. README.md says what matters for a client in another language.
"""
# The code that is generated at the start has no types for a checker.
# ruff: noqa: ANN401

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[2] / "crates" / "node" / "proto" / "mez" / "v1" / "mez.proto"
# gRPC's own limit, 4 MiB, is too small for a raw 4K frame.
MESSAGE_BYTES_MAX = 34 << 20
# Every edge's certificate is made out for this name, whatever address was dialled.
SERVER_NAME = "mez-edge"


def generate(proto: Path) -> tuple[Any, Any]:
    """Generates the messages and stubs into a temporary folder and imports them.

    A real project runs ``python -m grpc_tools.protoc`` once and keeps the result. The file's own folder is
    the root of what is imported: beside Mez's Python package, which is called ``mez``, a second package
    ``mez.v1`` would not be found.
    """
    folder = tempfile.mkdtemp(prefix="mez-foreign-")
    arguments = ["protoc", f"-I{proto.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    if protoc.main([*arguments, proto.name]) != 0:
        sys.exit(f"protoc failed on {proto}; give --proto the path of mez.proto")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("mez_pb2"), importlib.import_module("mez_pb2_grpc")
    finally:
        shutil.rmtree(folder)


def connect(arguments: argparse.Namespace) -> grpc.Channel:
    """Opens a channel: plain to a Unix socket, whose file permissions decide, else TLS with certificates."""
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ]
    if arguments.broker.startswith("unix:"):
        # Otherwise gRPC names the server after the path of the socket, which HTTP/2 does not allow.
        return grpc.insecure_channel(arguments.broker, [*options, ("grpc.default_authority", "localhost")])
    if not (arguments.authority and arguments.identity):
        sys.exit("over TCP a broker asks for a certificate: give --authority and --identity")
    # One file holds the private key and the certificate; each reader takes its own part.
    identity = arguments.identity.read_bytes()
    credentials = grpc.ssl_channel_credentials(arguments.authority.read_bytes(), identity, identity)
    options.append(("grpc.ssl_target_name_override", SERVER_NAME))
    return grpc.secure_channel(arguments.broker, credentials, options)


def say(**fields: Any) -> None:
    """Prints one line of JSON."""
    print(json.dumps(fields), flush=True)


class Clock:
    """How the broker's monotonic clock relates to ours, from the exchange with the shortest way."""

    def __init__(self, messages: Any, stub: Any) -> None:
        """Compares the clocks a few times."""
        self.offset_ns, self.error_ns = 0, sys.maxsize
        for _ in range(5):
            sent = time.monotonic_ns()
            request = messages.ConnectRequest(
                version_min=1, version_max=1, software="foreign_client 1", client_sent_monotonic_ns=sent
            )
            answer = stub.Connect(request, timeout=10)
            back = time.monotonic_ns()
            there, left = answer.broker_received_monotonic_ns, answer.broker_sent_monotonic_ns
            error_ns = ((back - sent) - (left - there)) // 2
            if error_ns < self.error_ns:
                self.error_ns = error_ns
                self.offset_ns = ((there - sent) + (left - back)) // 2
        self.broker = answer.software
        self.cameras = list(answer.cameras)

    def age_ms(self, frame: Any) -> float | None:
        """How old a frame is now, if the camera's clock has been compared with the edge's."""
        if not frame.HasField("captured_monotonic_ns"):
            return None
        captured_ns: int = frame.captured_monotonic_ns
        return (time.monotonic_ns() + self.offset_ns - captured_ns) / 1e6


def grey_image(number: int, width: int = 160, height: int = 120) -> bytes:
    """A grey image: its number in the first eight bytes, then a gradient that moves."""
    row = bytes((number + x) % 256 for x in range(width))
    return struct.pack("<Q", number) + (row * height)[8:]


def publish(arguments: argparse.Namespace, messages: Any, stubs: Any) -> None:
    """Publishes frames, and prints what becomes of each, and the replies of applications."""
    stub = stubs.CameraBrokerStub(connect(arguments))
    clock = Clock(messages, stub)
    say(event="connected", broker=clock.broker, cameras=clock.cameras)
    jpegs = [path.read_bytes() for path in arguments.jpeg]
    all_answered = threading.Event()

    def frames() -> Iterator[Any]:
        """The messages to send. gRPC calls this on its own thread."""
        next_at = time.monotonic()
        for number in range(arguments.frames):
            time.sleep(max(0.0, next_at - time.monotonic()))
            next_at += 1 / arguments.fps
            # The capture time by the broker's clock, independent of the time that the message takes.
            had = time.monotonic_ns() + clock.offset_ns
            if jpegs:
                image = {"encoding": messages.ENCODING_JPEG, "payload": jpegs[number % len(jpegs)]}
            else:
                payload = grey_image(number)
                image = {"encoding": messages.ENCODING_GRAY8, "width": 160, "height": 120, "payload": payload}
            yield messages.PublishRequest(
                camera=arguments.camera, number=number, captured_monotonic_ns=had, **image
            )
        # The end of the frames is the end of the stream, and so of the answers and replies on it.
        all_answered.wait()
        time.sleep(arguments.linger)
        if arguments.lost:
            # Otherwise the end of the stream says that the camera ended in good order.
            yield messages.PublishRequest(source_lost=arguments.lost)

    answered = 0
    for answer in stub.Publish(frames()):
        kind = answer.WhichOneof("event")
        if kind == "started":
            say(event="started", camera=answer.started.camera)
        elif kind == "accepted":
            accepted = answer.accepted
            say(event="accepted", number=accepted.number, epoch=accepted.epoch, sequence=accepted.sequence)
        elif kind == "refused":
            error = answer.refused.error
            say(event="refused", number=answer.refused.number, reason=error.reason, message=error.message)
        elif kind == "reply":
            say(event="reply", **told(answer.reply))
        answered += kind in ("accepted", "refused")
        if answered == arguments.frames:
            all_answered.set()
    say(event="published", frames=answered)


def told(reply: Any) -> dict[str, Any]:
    """The reply of an application. Boxes are in the pixels of the frame as we published it."""
    about = {"sequence": reply.sequence, "application": reply.application}
    if reply.WhichOneof("content") != "detections":
        return {**about, "payload": reply.payload.decode(errors="replace")}
    found = reply.detections
    boxes = [
        {"xyxy": [box.x1, box.y1, box.x2, box.y2], "score": box.score, "class_name": box.class_name}
        for box in found.detections
    ]
    return {**about, "width": found.width, "height": found.height, "boxes": boxes}


def answer_to(frame: Any, arguments: argparse.Namespace, messages: Any) -> Any:
    """A reply to a frame: opaque bytes, or a box in the pixels of the frame's image."""
    reply = messages.ReplyRequest(
        camera=frame.camera, epoch=frame.epoch, sequence=frame.sequence, application="foreign_client"
    )
    if arguments.reply is not None:
        # Opaque: it arrives as it is. Coordinates in it would have to be converted here.
        reply.payload = arguments.reply.encode()
        return reply
    # The edge converts them. It asks for both sizes: a camera sends frames smaller than they were published.
    reply.published_width, reply.published_height = frame.published_width, frame.published_height
    reply.detections.width, reply.detections.height = frame.width, frame.height
    left, top, right, bottom = arguments.box
    reply.detections.detections.add(
        x1=left * frame.width,
        y1=top * frame.height,
        x2=right * frame.width,
        y2=bottom * frame.height,
        score=1.0,
        class_name="example",
    )
    return reply


def subscribe(arguments: argparse.Namespace, messages: Any, stubs: Any) -> None:
    """Prints a line for each frame, and answers some."""
    stub = stubs.EdgeBrokerStub(connect(arguments))
    clock = Clock(messages, stub)
    say(event="connected", broker=clock.broker, clock_error_ms=clock.error_ns / 1e6)
    request = messages.SubscribeRequest(pattern=arguments.pattern, application="foreign_client")
    if arguments.latency_ms is not None:
        request.contract.latency_bound_ns = int(arguments.latency_ms * 1e6)
    if arguments.since_s is not None:
        request.begin_utc_ns = time.time_ns() - int(arguments.since_s * 1e9)
        request.end_utc_ns = time.time_ns()
    frames = 0
    events = stub.Subscribe(request)
    for event in events:
        kind = event.WhichOneof("event")
        if kind == "started":
            started = event.started
            say(event="started", subscription_id=started.subscription_id, cameras=list(started.cameras))
        elif kind == "waiting":
            say(event="waiting", matching=event.waiting.matching)
        elif kind == "camera_change":
            change = event.camera_change
            say(event="camera", camera=change.camera, up=change.up, reason=change.reason)
        elif kind == "frame":
            frame = event.frame
            frames += 1
            age_ms = clock.age_ms(frame)
            say(
                event="frame",
                camera=frame.camera,
                epoch=frame.epoch,
                sequence=frame.sequence,
                width=frame.width,
                height=frame.height,
                published=[frame.published_width, frame.published_height],
                encoding=messages.Encoding.Name(frame.encoding),
                rung=frame.rung,
                age_ms=None if age_ms is None else round(age_ms, 3),
                contract=messages.ContractState.Name(frame.contract_state),
                skipped={messages.SkipReason.Name(skip.reason): skip.count for skip in frame.skipped},
                payload_bytes=len(frame.payload),
                payload_sha256=hashlib.sha256(frame.payload).hexdigest(),
            )
            if arguments.reply is not None or arguments.box is not None:
                stub.Reply(answer_to(frame, arguments, messages), timeout=10)
            if frames == arguments.frames:
                # The polite way; cancelling the stream, or ending the process, does the same.
                events.cancel()
                break
        elif kind == "ended":
            rest = {camera.camera: len(camera.skipped) for camera in event.ended.rest}
            say(event="ended", rest=rest)
    say(event="received", frames=frames)


def derive(arguments: argparse.Namespace, messages: Any, stubs: Any) -> None:
    """Publishes, at the edge, a record for each frame of a camera: how large the frame was."""
    channel = connect(arguments)
    stub = stubs.EdgeBrokerStub(channel)
    frames = stub.Subscribe(messages.SubscribeRequest(pattern=arguments.camera))

    def records() -> Iterator[Any]:
        # The first message only says what the stream is made of.
        yield messages.PublishRequest(camera=arguments.stream, derived_from=[arguments.camera])
        number = 0
        for event in frames:
            if event.WhichOneof("event") != "frame":
                continue
            frame = event.frame
            made_of = messages.Origin(
                camera=frame.camera,
                epoch=frame.epoch,
                sequence=frame.sequence,
                captured_utc_ns=frame.captured_utc_ns,
            )
            yield messages.PublishRequest(
                number=number,
                encoding=messages.ENCODING_DATA,
                content_type="application/json",
                payload=json.dumps({"bytes": len(frame.payload)}).encode(),
                of=made_of,
            )
            number += 1
            if number == arguments.frames:
                return

    for answer in stub.Publish(records()):
        kind = answer.WhichOneof("event")
        if kind == "started":
            say(event="started", stream=answer.started.camera)
        elif kind == "accepted":
            accepted = answer.accepted
            say(event="accepted", number=accepted.number, epoch=accepted.epoch, sequence=accepted.sequence)
        elif kind == "refused":
            error = answer.refused.error
            say(event="refused", number=answer.refused.number, reason=error.reason, message=error.message)
    frames.cancel()


def answers(arguments: argparse.Namespace, messages: Any, stubs: Any) -> None:
    """Takes the pictures that applications make of a camera's frames, and prints a line for each."""
    stub = stubs.CameraBrokerStub(connect(arguments))
    clock = Clock(messages, stub)
    say(event="connected", broker=clock.broker, cameras=clock.cameras)
    request = messages.TakeAnswersRequest(camera=arguments.camera, bound_ns=int(arguments.bound_ms * 1e6))
    taken = 0
    responses = stub.TakeAnswers(request)
    for number, response in enumerate(responses):
        if number == 0:
            # It comes at once: from now on, nobody else can take the answers.
            say(event="started")
        if response.skipped:
            counts = {messages.AnswerSkipReason.Name(skip.reason): skip.count for skip in response.skipped}
            say(event="skipped", **counts)
        if not response.HasField("answer"):
            continue
        answer = response.answer
        taken += 1
        say(
            event="answer",
            epoch=answer.epoch,
            sequence=answer.sequence,
            width=answer.width,
            height=answer.height,
            content_type=answer.content_type,
            age_ms=round((time.monotonic_ns() + clock.offset_ns - answer.captured_monotonic_ns) / 1e6, 3),
            stages_ms={
                messages.AnswerStage.Name(passed.stage): passed.since_capture_ns / 1e6
                for passed in answer.stages
            },
            payload_sha256=hashlib.sha256(answer.payload).hexdigest(),
        )
        if taken == arguments.answers:
            responses.cancel()
            break
    say(event="taken", answers=taken)


def cameras(arguments: argparse.Namespace, messages: Any, stubs: Any) -> None:
    """Prints a line for each camera of an edge."""
    stub = stubs.EdgeBrokerStub(connect(arguments))
    answer = stub.GetCameraInfo(messages.GetCameraInfoRequest(), timeout=10)
    for info in answer.cameras:
        made_of = list(info.derived_from)
        say(event="camera", camera=info.camera, up=info.connected, published=info.published, made_of=made_of)


def main() -> None:
    """Reads the command line and runs one command."""
    parser = argparse.ArgumentParser(description="A client of Mez generated from mez.proto alone.")
    parser.add_argument("--proto", type=Path, default=PROTO, help="the path of mez.proto")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=function.__doc__)
        sub.set_defaults(function=function)
        sub.add_argument("--broker", required=True, help="unix:///PATH or HOST:PORT")
        sub.add_argument("--authority", type=Path, help="the site's authority.pem (over TCP)")
        sub.add_argument(
            "--identity", type=Path, help="an identity of the site, key and certificate (over TCP)"
        )
        return sub

    sub = command("publish", publish)
    sub.add_argument("--camera", default="", help="the camera [default: the broker's only one]")
    sub.add_argument("--frames", type=int, default=100, help="number of frames to publish [default: 100]")
    sub.add_argument("--fps", type=float, default=15.0, help="frames per second [default: 15]")
    sub.add_argument(
        "--jpeg", type=Path, nargs="+", default=[], help="JPEG files to publish [default: grey test images]"
    )
    sub.add_argument("--lost", metavar="REASON", help="say at the end that the camera is lost, and why")
    sub.add_argument("--linger", type=float, default=0.0, help="seconds to wait for replies at the end")

    sub = command("subscribe", subscribe)
    sub.add_argument("pattern", help="cameras, such as 'dock/*'")
    sub.add_argument("--frames", type=int, default=0, help="number of frames to stop after [default: never]")
    sub.add_argument("--latency-ms", type=float, help="latency bound, in milliseconds")
    sub.add_argument("--since-s", type=float, help="read this many past seconds, not live frames")
    replies = sub.add_mutually_exclusive_group()
    replies.add_argument("--reply", help="send this text back for every frame")
    replies.add_argument(
        "--box",
        type=float,
        nargs=4,
        metavar=("LEFT", "TOP", "RIGHT", "BOTTOM"),
        help="send this box back for every frame, as shares of its image, from 0 to 1",
    )

    sub = command("derive", derive)
    sub.add_argument("camera", help="the camera that the records are made of")
    sub.add_argument("stream", help="the derived stream, such as dock/cam1/sizes")
    sub.add_argument("--frames", type=int, default=0, help="number of records to stop after [default: never]")

    sub = command("answers", answers)
    sub.add_argument("--camera", default="", help="the camera [default: the broker's only one]")
    sub.add_argument(
        "--bound-ms",
        type=float,
        default=200.0,
        help="milliseconds until an answer has to leave the edge [default: 200]",
    )
    sub.add_argument(
        "--answers", type=int, default=0, help="number of answers to stop after [default: never]"
    )

    command("cameras", cameras)

    arguments = parser.parse_args()
    try:
        arguments.function(arguments, *generate(arguments.proto))
    except grpc.RpcError as error:
        say(event="error", code=error.code().name, message=error.details())
        sys.exit(1)
    except OSError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
