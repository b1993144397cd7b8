"""The command `mez bridge`."""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import mez
from mez._interrupt import Interrupt
from mez.bridge import file, notes
from mez.bridge.file import Bridge
from mez.bridge.status import Teller
from mez.errors import Error, MissingPackageError
from mez.pipeline import status as states

PROGRESS_S: Final = 5.0

_EXAMPLES: Final = """\
A file:
  [bridge]
  name = "hall7"

  [kafka]
  servers = ["kafka1:9093", "kafka2:9093"]

  [stream.frames]                       # every frame that crosses the link, into the topic mez.frames
  cameras = "dock/*"

  [notes]                               # replies of applications into mez.results, and changes of
                                        # contracts and sources into mez.events
  cameras = "dock/*"

Examples:
  mez bridge check hall7.toml           is the file valid, do the edge and Kafka answer?
  mez bridge kafka hall7.toml           copy until Ctrl-C
  mez bridge kafka hall7.toml --json    the same, with a line of JSON every five seconds

docs/bridge.md describes the file, the messages, and what is promised.
"""


def run(words: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    options = _parser().parse_args(words)
    action: Callable[[argparse.Namespace], int] = options.action
    try:
        return action(options)
    except Error as error:
        print(f"mez bridge: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mez bridge",
        description="Copy frames, derived streams, results and events from an edge into Kafka topics.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, action: Callable[[argparse.Namespace], int], says: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        command.set_defaults(action=action)
        return command

    running = add("kafka", _run, "copy into Kafka; Ctrl-C waits for confirmations, then ends")
    running.add_argument("file", type=Path, metavar="FILE", help="the bridge's file (TOML)")
    running.add_argument("--json", action="store_true", help="print all messages as lines of JSON")
    running.add_argument(
        "--progress",
        type=float,
        default=PROGRESS_S,
        metavar="SECONDS",
        help=f"interval of the progress lines; 0: only a summary at the end [{PROGRESS_S:g}]",
    )
    running.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="folder in which the bridge keeps its position in results and events; keep this folder "
        "[MEZ_STATE; else /var/lib/mez (root), "
        "~/.local/state/mez]",
    )
    checking = add("check", _check, "check a file, then whether the edge and Kafka answer")
    checking.add_argument("file", type=Path, metavar="FILE", help="the bridge's file (TOML)")
    checking.add_argument(
        "--file-only", action="store_true", help="check only the file; do not connect to the edge or Kafka"
    )
    add("schema", _schema, "print the JSON schema of bridge files, for editors")
    return parser


def _run(options: argparse.Namespace) -> int:
    bridge = file.read(options.file)
    _need_kafka()
    from mez.bridge.run import Run

    place = states.folder(bridge.name, options.state, "bridges")
    teller = Teller(is_json=options.json)
    with states.lock(place, "bridge"), Interrupt() as end:
        try:
            return Run(bridge, place, teller, max(0.0, options.progress)).run(end)
        except KeyboardInterrupt:
            teller.tell("ended at once; what is not confirmed is given again")
            return 130


def _check(options: argparse.Namespace) -> int:
    bridge = file.read(options.file)
    print(f"{options.file}: {len(bridge.streams)} streams, topics {', '.join(bridge.topics)}")
    if options.file_only:
        return 0
    _check_edge(bridge)
    print("the edge answers, and lets this program have the cameras")
    _need_kafka()
    from mez.bridge import outlet
    from mez.pipeline.kafka_client import Link

    outlet.check(Link(bridge.kafka))
    print(f"Kafka at {','.join(bridge.kafka.servers)} answers")
    return 0


def _check_edge(bridge: Bridge) -> None:
    """Subscribe to what the bridge would subscribe to, outside its groups, and read no frame.

    Raises:
        Error: The edge is away, or refuses.
    """
    edge = list(bridge.edge) or None
    for stream in bridge.streams.values():
        mez.subscribe(stream.cameras, edge=edge, keys=bridge.keys, **stream.contract).close()
        if stream.is_every:
            # What is past by the time the edge reads it needs the grants that a group needs.
            now_ns = time.time_ns()
            mez.subscribe(stream.cameras, edge=edge, keys=bridge.keys, since=now_ns).close()
    if bridge.notes is not None:
        notes.check(bridge)


def _schema(_: argparse.Namespace) -> int:
    print(file.schema(), end="")
    return 0


def _need_kafka() -> None:
    try:
        importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise MissingPackageError(
            f"a bridge to Kafka needs the package confluent-kafka ({error}); run: pip install 'mez[kafka]'"
        ) from error
