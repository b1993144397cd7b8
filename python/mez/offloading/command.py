"""The command `mez offload`."""

import argparse
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from mez._answers import ANSWER_MS
from mez._commands import ENDED_AT_ONCE, Teller
from mez._figures import number_within, percentile
from mez._interrupt import Interrupt
from mez.errors import EndedError, Error
from mez.offloading.client import Offload, OffloadCounts, cameras_of, offload

LINE_EVERY_S: Final = 1.0
"""The interval of progress lines, in seconds."""

HINT_S: Final = 3.0
"""After how many seconds without an answer the command prints how to start an engine."""

RECENT_MAX: Final = 1000
"""The most answers that are summarised in a line."""

_EPILOG: Final = """\
examples:
  mez engine run style --cameras 'offload/style/*'
                                                at the edge: run the engine
  mez offload --source /dev/video0 --edge edge.local --show
                                                on the device: show the answers to a camera's frames
  mez offload --source street.mp4 --pictures out/street --seconds 20
  mez offload --source 0 --where auto --show    for each frame: at the edge or here, whichever is faster

A device on another host than the edge needs the keys of a camera:
  mez keys token camera/offload/style/phone1    on the edge's host: prints a one-time TOKEN
  mez keys enrol TOKEN --edge edge.local        on the device
  mez offload --source /dev/video0 --edge edge.local --show --camera offload/style/phone1
The keys of camera/NAME may publish only NAME and names below it. docs/offload.md describes offload.

exit status:
  0  answers came
  1  no answers came, or an error ended the command
Ctrl-C ends the command early, with the summary.
"""


def run(words: Sequence[str]) -> int:
    """Run the command, and return its exit status."""
    options = _parser().parse_args(words)
    teller = Teller(is_json=options.json)
    with Interrupt() as end:
        try:
            with _client(options) as client:
                _loop(client, options, teller, end)
            return _sum_up(client.counts, teller)
        except Error as error:
            print(f"mez offload: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return ENDED_AT_ONCE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mez offload",
        description="Sends frames to an engine at the edge, and shows the pictures that it makes of them. "
        "If it is too slow, older frames and pictures are skipped.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--source", required=True, help="a camera (/dev/video0, or its number), a video file, or an address")
    add(
        "--engine",
        default="style",
        help="style, boxes, noop, FILE.onnx, FILE.py:FUNCTION; auto means style with --where auto [style]",
    )
    add("--edge", help="the edge: HOST or HOST:PORT [MEZ_EDGE; else the edge of this host]")
    add(
        "--where",
        choices=("edge", "device", "auto"),
        default="edge",
        help="where answers are made: at the edge, on this device, or auto: on the faster side [edge]",
    )
    add(
        "--camera",
        metavar="NAME",
        help="the camera's name, which the keys must allow [offload/ENGINE/HOST-PROCESS-NUMBER]",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--show", action="store_true", help="show answers in a window; without a display: in out/offload"
    )
    shown.add_argument(
        "--pictures", type=Path, metavar="DIR", help="write one answer per second to this folder"
    )
    add(
        "--seconds",
        type=number_within(0.001, 1e9),
        metavar="N",
        help="how long to capture, in seconds [until the source ends, or Ctrl-C]",
    )
    add(
        "--fps",
        type=number_within(0.001, 1e9),
        metavar="N",
        help="pictures per second of a file [the file's own rate]",
    )
    add("--loop", action="store_true", help="start the file again at its end")
    add(
        "--answer-ms",
        type=number_within(0.001, 1e9),
        default=ANSWER_MS,
        metavar="MS",
        help=f"maximum milliseconds from capture until the answer has left the edge [{ANSWER_MS:g}]",
    )
    add("--device", choices=("cpu", "cuda"), default="cpu", help="processor of the engine here [cpu]")
    add("--keys", type=Path, metavar="PATH", help="folder of keys [MEZ_KEYS; else ~/.config/mez/keys]")
    add("--json", action="store_true", help="print all messages as lines of JSON")
    return parser


def _client(options: argparse.Namespace) -> Offload:
    return offload(
        options.source,
        options.engine,
        edge=options.edge,
        where=options.where,
        camera=options.camera,
        answer_ms=options.answer_ms,
        show=options.show,
        pictures=options.pictures,
        seconds=options.seconds,
        fps=options.fps,
        loop=options.loop,
        device=options.device,
        keys=options.keys,
    )


def _loop(client: Offload, options: argparse.Namespace, teller: Teller, end: Interrupt) -> None:
    """Take answers, and print a progress line once a second."""
    began_s = told_s = time.monotonic()
    recent: deque[float] = deque(maxlen=RECENT_MAX)
    before = client.counts
    hinted = client.camera is None
    refused = None
    if client.display is not None:
        teller.tell(f"answers go to {client.display}")
    while not end():
        try:
            answer = client.next(timeout=0.1)
        except EndedError:
            return
        if answer is not None:
            recent.append(answer.age_ms)
        now_s = time.monotonic()
        if now_s - told_s < LINE_EVERY_S:
            continue
        counts = client.counts
        status = _status(before, counts, list(recent), now_s - told_s)
        teller.show(status, _line(status))
        recent.clear()
        before, told_s = counts, now_s
        why = client.refusal()
        if why is not None and why != refused:
            # A repeated reason is printed once.
            hinted, refused = True, why
            teller.tell(f"the engine refuses frames: {why}")
        if not hinted and counts.given.get("edge", 0) == 0 and now_s - began_s >= HINT_S:
            hinted = True
            # The camera's name was given, or it comes from the engine's name.
            cameras = options.camera or cameras_of("style" if options.engine == "auto" else options.engine)
            teller.tell(f"no answer yet: is an engine running? mez engine run ENGINE --cameras '{cameras}'")


def _status(
    before: OffloadCounts, counts: OffloadCounts, ages_ms: list[float], seconds: float
) -> dict[str, Any]:
    """The figures since the last line."""
    skipped = {
        reason: count - before.skipped.get(reason, 0)
        for reason, count in counts.skipped.items()
        if count > before.skipped.get(reason, 0)
    }
    return {
        "answers_per_second": round(len(ages_ms) / seconds, 1),
        "frames_per_second": round((counts.captured - before.captured) / seconds, 1),
        "capture_to_display_ms_p50": percentile(ages_ms, 50),
        "capture_to_display_ms_p95": percentile(ages_ms, 95),
        "made_at_edge": counts.given.get("edge", 0) - before.given.get("edge", 0),
        "made_on_device": counts.given.get("device", 0) - before.given.get("device", 0),
        "skipped": skipped,
    }


def _line(status: dict[str, Any]) -> str:
    line = f"{status['answers_per_second']:.1f} answers/s of {status['frames_per_second']:.1f} frames/s"
    if status["capture_to_display_ms_p50"] is not None:
        p50, p95 = status["capture_to_display_ms_p50"], status["capture_to_display_ms_p95"]
        line += f", capture to display {p50:.0f} ms (p95 {p95:.0f})"
    if status["made_on_device"]:
        line += f", {status['made_at_edge']} from the edge, {status['made_on_device']} from the device"
    return line + _told(status["skipped"])


def _told(skipped: dict[str, int]) -> str:
    if not skipped:
        return ""
    return "; skipped: " + ", ".join(f"{count} {reason}" for reason, count in skipped.items())


def _sum_up(counts: OffloadCounts, teller: Teller) -> int:
    """Print what happened to all frames, and return the exit status."""
    given = sum(counts.given.values())
    p50, p95 = counts.age_ms(0.5), counts.age_ms(0.95)
    line = f"{given} answers to {counts.captured} frames"
    if p50 is not None and p95 is not None:
        line += f", capture to display {p50:.1f} ms (p95 {p95:.1f})"
    if counts.to_device:
        edge, device = counts.given.get("edge", 0), counts.given.get("device", 0)
        line += f"; {edge} from the edge, {device} from the device"
    line += _told(dict(counts.skipped))
    if counts.unanswered:
        line += f"; {counts.unanswered} frames without an answer (no engine ran, or it took newer frames)"
    figures = asdict(counts) | {"capture_to_display_ms_p50": p50, "capture_to_display_ms_p95": p95}
    del figures["ages_ms"]
    teller.show(figures, line)
    return 0 if given else 1
