"""The command `mez engine`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez._commands import Commands, Teller, add_state, folder, until_ended
from mez._reports import UNUSABLE
from mez.engine import engines, worker
from mez.engine.errors import EngineError
from mez.engine.loop import DRAWN_BY, GROUP
from mez.engine.supervisor import ANSWER_WITHIN_S, PROGRESS_S, Supervisor
from mez.engine.worker import Work
from mez.errors import ArgumentError, ArgumentTypeError, BrokerError, BusyError, KeysError

WORKERS_MAX: Final = 64
"""The most workers of one command."""

_EXAMPLES: Final = """\
Examples:
  mez engine run style --cameras 'phone/*'                    repaint frames in the style of Mez
  mez engine run boxes --cameras 'phone/*' --workers 2        find objects, and draw boxes
  mez engine run boxes --cameras 'phone/*' --draw device      find objects; the devices draw the boxes
  mez engine run mine.py:paint --cameras 'phone/*'            your own function: pixels in, pixels out
  mez engine run picasso.onnx --cameras 'phone/*' --device cuda   a style from mez style train, on a GPU

docs/offload.md describes engines, and how devices get their answers.
"""


def main(words: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    commands = Commands(
        "mez engine",
        "Run engines: programs that make pictures of cameras' frames, and send them back to the cameras.",
        _EXAMPLES,
    )
    running = commands.add("run", _run, "run an engine on this host, until Ctrl-C")
    _add_work(running)
    running.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes that share the frames [1]"
    )
    running.add_argument(
        "--answer-within",
        type=float,
        default=ANSWER_WITHIN_S,
        metavar="SECONDS",
        help=f"kill and restart a worker that works on one frame for longer than this [{ANSWER_WITHIN_S:g}]",
    )
    running.add_argument("--json", action="store_true", help="print all messages as lines of JSON")
    running.add_argument(
        "--progress",
        type=float,
        default=PROGRESS_S,
        metavar="SECONDS",
        help=f"interval of the progress lines; 0: only a summary at the end [{PROGRESS_S:g}]",
    )
    running.add_argument(
        "--name", metavar="NAME", help="name of this engine, if this host runs several of one group [GROUP]"
    )
    add_state(running, "folder for logs")
    # What `run` starts.
    working = commands.add_hidden("worker", _worker)
    _add_work(working)
    working.add_argument("hand", type=Path)
    return commands.run(words)


def _add_work(command: argparse.ArgumentParser) -> None:
    command.add_argument("engine", metavar="ENGINE", help=engines.NAMES)
    command.add_argument(
        "--cameras", required=True, metavar="PATTERN", help="a camera's name, or a pattern such as 'phone/*'"
    )
    command.add_argument("--edge", metavar="EDGE", help="the edge [MEZ_EDGE; else the edge of this host]")
    command.add_argument("--keys", type=Path, metavar="DIR", help="folder of keys [MEZ_KEYS]")
    command.add_argument(
        "--group",
        default=GROUP,
        metavar="NAME",
        help=f"engines of one group share the frames: each frame goes to one engine [{GROUP}]",
    )
    command.add_argument(
        "--device",
        choices=engines.DEVICES,
        default="cpu",
        help="processor of this host for style and boxes [cpu]",
    )
    command.add_argument(
        "--latency-ms",
        type=float,
        metavar="MS",
        help="latency bound: maximum milliseconds from capture until the engine gets a frame [none]",
    )
    command.add_argument(
        "--draw",
        choices=DRAWN_BY,
        default="engine",
        help="who draws boxes and overlays. engine: pictures are sent, finished. device: boxes and overlays "
        "are sent, in fewer bytes, and the program that publishes the camera draws them (mez offload does; "
        "your own program: Answer.over) [engine]",
    )
    command.add_argument(
        "--fresh",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="an engine that is slower than a camera waits for the next frame if that will come soon: "
        "pictures are younger, but fewer. --no-fresh: it takes the newest frame at once [--fresh]",
    )


def _work(options: argparse.Namespace) -> Work:
    return Work(
        options.engine,
        options.cameras,
        options.edge,
        options.group,
        options.device,
        options.keys,
        options.latency_ms,
        options.draw,
        options.fresh,
    )


def _run(options: argparse.Namespace) -> int:
    if not 1 <= options.workers <= WORKERS_MAX:
        raise EngineError(f"--workers is {options.workers}; give 1 to {WORKERS_MAX}")
    if not options.answer_within > 0:
        raise EngineError(f"--answer-within is {options.answer_within:g}; give seconds above 0")
    name = options.name or options.group
    place = folder("engines", name.replace("/", "+"), options.state)
    teller = Teller(is_json=options.json)
    return until_ended(
        place,
        "engine",
        lambda end: Supervisor(
            _work(options),
            options.workers,
            options.answer_within,
            place,
            teller,
            max(0.0, options.progress),
        ).run(end),
        lambda: teller.tell("ended at once"),
    )


def _worker(options: argparse.Namespace) -> int:
    try:
        worker.main(_work(options), options.hand)
    except BusyError:
        # The edge was full when the worker reconnected: a restart may help.
        raise
    except (EngineError, BrokerError, KeysError, ArgumentError, ArgumentTypeError) as error:
        # A restart does not help: an engine, an argument, a name, a right or a key is wrong.
        print(f"mez engine: {error}", file=sys.stderr)
        return UNUSABLE
    return 0
