"""`mez demo --offload`: the demo's video goes to an engine at the edge, and painted pictures come back.

An edge runs in this process, and `mez engine run` in a process of its own. The client is `mez.offload`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from rich.console import Console

import mez
from mez._figures import number_within
from mez._interrupt import EndedEarlyError, Interrupt
from mez._processes import Child, ProcessError, mez_command
from mez.demo.logs import log_to
from mez.demo.options import needed_video
from mez.demo.pictures import captioned, contact_sheet, write
from mez.engine import EngineError, Image, load
from mez.offloading import Answered, Offload, OffloadCounts, cameras_of
from mez.offloading import source as sources

PAIRS: Final = 6
"""Pairs on the contact sheet, spread over the run."""

FIRST_SECONDS_MAX: Final = 60.0
"""How long the first answer may take. The engine loads its network in this time."""

LINE_EVERY_S: Final = 2.0
STOP_S: Final = 5.0

BRUSH: Final = "mez.demo.brush:paint"
"""The engine where `style` cannot be loaded."""


def run(arguments: Sequence[str]) -> int:
    """Run the demo of offload, and return its exit code: 0 if answers came."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    with (
        tempfile.TemporaryDirectory(prefix="mez-demo-", ignore_cleanup_errors=True) as work,
        Interrupt() as interrupt,
        log_to(Path(work) / "client.log"),
    ):
        try:
            return Demo(options, Path(work), console, interrupt).run()
        except (ProcessError, mez.Error) as error:
            console.print(f"mez demo: {error}", style="bold red", markup=False, soft_wrap=True)
        except EndedEarlyError:
            console.print("mez demo: ended before answers came")
        except KeyboardInterrupt:
            console.print("mez demo: stopped at once", style="bold red")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mez demo --offload",
        description="Sends a video to an engine at the edge, which repaints its frames. Writes a picture "
        "with pairs: a frame and its answer, with the latency from capture to display.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--offload", action="store_true", required=True, help="show offload")
    add("--engine", default="style", help="as in mez engine run [style; without it, a filter of OpenCV]")
    add(
        "--where",
        choices=("edge", "auto"),
        default="edge",
        help="where answers are made: at the edge, or on the faster side for each frame [edge]",
    )
    add("--seconds", type=number_within(1, 86400), default=20.0, help="seconds of the demo [20]")
    add("--fps", type=number_within(0.5, 120), help="frames per second [the video's own rate]")
    add("--width", type=int, choices=range(64, 1921), default=320, metavar="PIXELS", help="of frames [320]")
    add("--video", type=Path, metavar="FILE", help="video of the camera [the demo's]")
    add("--answer-ms", type=number_within(10, 60_000), default=1000.0, help="as in mez offload [1000]")
    add("--json", type=Path, metavar="FILE", help="file for the figures [none]")
    add("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="folder for pictures [out/demo]")
    add("--headless", action="store_true", help="no effect, because this demo always prints lines")
    return parser


class Demo:
    """One run.

    Args:
        options: The command line.
        work: An empty folder.
        console: Where people read.
        interrupted: Tells whether to end early.
    """

    def __init__(
        self, options: argparse.Namespace, work: Path, console: Console, interrupted: Callable[[], bool]
    ) -> None:
        self._options = options
        self._work = work
        self._console = console
        self._interrupted = interrupted
        # The first answer of each part of the run.
        self._pairs: dict[int, Answered] = {}

    def run(self) -> int:
        """Run it, and print the results.

        Raises:
            ProcessError: The engine ended, or did not answer.
            mez.Error: The video is missing, or the engine cannot be loaded.
            EndedEarlyError: It was interrupted before an answer came.
        """
        video, engine = needed_video(self._options.video), self._engine()
        with mez.edge() as edge:
            child = Child("engine", self._command(engine, edge), self._work / "engine.log")
            child.start()
            try:
                with self._client(video, engine, edge) as client:
                    self._await_first(client, child)
                    counts = self._take(client, child)
            finally:
                child.stop(STOP_S)
                child.close()
        return self._tell(counts, engine)

    def _engine(self) -> str:
        """The engine of the command line; a filter instead of `style` if that cannot be loaded."""
        engine: str = self._options.engine
        try:
            load(engine)  # raises early if something is missing
        except EngineError as error:
            if engine != "style":
                raise
            self._console.print(
                f"  using a filter of OpenCV instead of the style: {error}", style="yellow", markup=False
            )
            return BRUSH
        return engine

    def _command(self, engine: str, edge: mez.Edge) -> list[str]:
        words = ["engine", "run", engine, "--cameras", cameras_of(engine), "--edge", f"unix://{edge.socket}"]
        return mez_command(*words, "--progress", "0", "--state", str(self._work / "state"))

    def _client(self, video: Path, engine: str, edge: mez.Edge) -> Offload:
        return mez.offload(
            self._frames(video),
            engine,
            edge=edge,
            where=self._options.where,
            answer_ms=self._options.answer_ms,
        )

    def _frames(self, video: Path) -> Iterator[Image]:
        for image in sources.read(video, self._options.fps, loop=True):
            high, wide = image.shape[:2]
            size = (self._options.width, round(high * self._options.width / wide))
            yield np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)

    def _await_first(self, client: Offload, child: Child) -> None:
        with self._console.status("starting the engine …"):
            limit_s = time.monotonic() + FIRST_SECONDS_MAX
            # With `auto`, this device answers before the engine at the edge has started.
            while client.next(timeout=0.1) is None or not client.counts.given.get("edge"):
                if self._interrupted():
                    raise EndedEarlyError
                if client.counts.skipped.get("overtaken") or client.counts.skipped.get("repeated"):
                    return
                exited = child.poll()
                if exited is not None or time.monotonic() > limit_s:
                    raise ProcessError(f"the engine {exited or _nothing(client)}.{child.last_words()}")

    def _take(self, client: Offload, child: Child) -> OffloadCounts:
        """Take answers until the time is over, and keep some for the contact sheet.

        Raises:
            ProcessError: The engine ended.
        """
        begins_s, next_s = time.monotonic(), time.monotonic() + LINE_EVERY_S
        seconds: float = self._options.seconds
        while not self._interrupted():
            exited = child.poll()
            # Ctrl-C in a terminal reaches the engine too.
            if exited is not None and not self._interrupted():
                raise ProcessError(f"the engine {exited}.{child.last_words()}")
            now_s = time.monotonic()
            if now_s >= begins_s + seconds:
                break
            answer = client.next(timeout=0.1)
            if answer is not None and answer.original is not None:
                self._pairs.setdefault(int((now_s - begins_s) / seconds * PAIRS), answer)
            if now_s >= next_s:
                next_s += LINE_EVERY_S
                counts = client.counts
                self._console.print(f"  {_sentence(counts)}", markup=False)
        return client.counts

    def _tell(self, counts: OffloadCounts, engine: str) -> int:
        self._console.print(f"{engine}: {_sentence(counts)}.", markup=False)
        told = ", ".join(f"{count} {reason}" for reason, count in counts.skipped.items())
        self._console.print(
            f"{counts.unanswered} frames had no answer, because no engine was ready or it took newer frames"
            + (f"; skipped: {told}." if told else ".")
        )
        pairs = [_pair(answer) for _, answer in sorted(self._pairs.items())]
        sheet = None
        if pairs:
            sheet = write(self._options.out / "offload-pairs.png", contact_sheet(pairs))
            self._console.print(f"Pairs of frames and answers: {sheet}", markup=False)
        if self._options.json is not None:
            figures = asdict(counts) | {"engine": engine, "sheet": None if sheet is None else str(sheet)}
            figures |= {"age_ms_p50": counts.age_ms(0.5), "age_ms_p95": counts.age_ms(0.95)}
            del figures["ages_ms"]
            self._options.json.write_text(json.dumps(figures, indent=2) + "\n")
        return 0 if pairs else 1


def _nothing(client: Offload) -> str:
    """Says that no answer came, and how many came too late."""
    late = client.counts.skipped.get("late", 0)
    told = f"; {late} were late: give a larger --answer-ms, or a smaller --width" if late else ""
    return f"gave no answer within {FIRST_SECONDS_MAX:.0f} s{told}"


def _sentence(counts: OffloadCounts) -> str:
    given, p50, p95 = sum(counts.given.values()), counts.age_ms(0.5), counts.age_ms(0.95)
    sentence = f"{given} answers to {counts.captured} frames"
    if counts.to_device:
        sentence += (
            f" ({counts.given.get('edge', 0)} from the edge, {counts.given.get('device', 0)} from the device)"
        )
    if p50 is None or p95 is None:
        return sentence
    return sentence + f", capture to display {p50:.0f} ms (p95 {p95:.0f})"


def _pair(answer: Answered) -> Image:
    """A frame and its answer side by side, with the time of each step below them."""
    frame, made = answer.original, answer.image
    assert frame is not None, "others are not kept"
    if made.shape != frame.shape:
        made = np.asarray(cv2.resize(made, (frame.shape[1], frame.shape[0])), np.uint8)
    ms = answer.ms
    stages = ", ".join(f"{name} {ms[name]:.0f}" for name in ("up", "began", "made", "arrived") if name in ms)
    return captioned(
        np.hstack([frame, made]),
        f"frame {answer.number}  {answer.made_at}  {answer.age_ms:.0f} ms  ({stages})",
    )
