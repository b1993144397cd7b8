"""The command `mez bridge`."""

import argparse
import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import mez
from mez._commands import Commands, Teller, add_state, folder, until_ended
from mez.bridge import file, notes
from mez.bridge.dds import command as dds
from mez.bridge.dds import file as dds_file
from mez.bridge.events import command as events
from mez.bridge.events import file as events_file
from mez.bridge.file import Bridge
from mez.errors import MissingPackageError

PROGRESS_S: Final = 5.0

_EXAMPLES: Final = """\
A file:
  [bridge]
  name = "hall7"

  [kafka]
  servers = ["kafka1:9093", "kafka2:9093"]

  [stream.frames]                       # every frame that crosses the link, into the topic mez.frames
  cameras = "dock/*"

  [notes]                               # replies of applications into mez.results, and states of
                                        # contracts and sources into mez.events
  cameras = "dock/*"

Examples:
  mez bridge check hall7.toml           is the file valid, do the edge and Kafka answer?
  mez bridge kafka hall7.toml           copy until Ctrl-C
  mez bridge kafka hall7.toml --json    the same, with one line of JSON every five seconds

  mez bridge dds hall7-dds.toml         copy cameras into topics of ROS 2, and topics into cameras

  mez bridge events hall7-events.toml   send events to webhooks and to MQTT

docs/bridge.md, docs/dds.md and docs/events.md describe the files, the messages, and what is promised.
"""


_SCHEMAS: Final = {"kafka": file.schema, "dds": dds_file.schema, "events": events_file.schema}


def run(words: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    commands = Commands(
        "mez bridge",
        "Copy frames and results from an edge into topics of Kafka, or of DDS and ROS 2; and image topics of "
        "DDS into cameras. Send events to webhooks and to MQTT.",
        _EXAMPLES,
    )
    _run_options(commands.add("kafka", _run, "copy into Kafka; Ctrl-C waits for confirmations, then ends"))
    _run_options(commands.add("dds", _run_dds, "copy cameras into topics of DDS, and topics into cameras"))
    _run_options(commands.add("events", _run_events, "send events to webhooks and to MQTT"))
    checking = commands.add("check", _check, "check a file, then whether the edge answers, and Kafka or DDS")
    _add_file(checking)
    checking.add_argument("--file-only", action="store_true", help="check only the file; connect to nothing")
    schema = commands.add("schema", _schema, "print the JSON schema of bridge files, for editors")
    schema.add_argument(
        "kind", choices=tuple(_SCHEMAS), nargs="?", default="kafka", help="the kind of bridge [kafka]"
    )
    return commands.run(words)


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="the bridge's file (TOML)")


def _run_options(command: argparse.ArgumentParser) -> None:
    _add_file(command)
    command.add_argument("--json", action="store_true", help="print all messages as lines of JSON")
    command.add_argument(
        "--progress",
        type=float,
        default=PROGRESS_S,
        metavar="SECONDS",
        help=f"interval of the progress lines; 0: only a summary at the end [{PROGRESS_S:g}]",
    )
    add_state(command, "folder in which the bridge keeps its positions; do not delete it")


def _run(options: argparse.Namespace) -> int:
    bridge = file.read(options.file)
    _need_kafka()
    from mez.bridge.run import Run

    place = folder("bridges", bridge.name, options.state)
    teller = Teller(is_json=options.json)
    return until_ended(
        place,
        "bridge",
        lambda end: Run(bridge, place, teller, max(0.0, options.progress)).run(end),
        lambda: teller.tell("ended at once; unconfirmed records are sent again at the next start"),
    )


def _run_dds(options: argparse.Namespace) -> int:
    progress_s = max(0.0, options.progress)
    return dds.run(options.file, options.state, is_json=options.json, progress_s=progress_s)


def _run_events(options: argparse.Namespace) -> int:
    progress_s = max(0.0, options.progress)
    return events.run(options.file, options.state, is_json=options.json, progress_s=progress_s)


def _check(options: argparse.Namespace) -> int:
    if events_file.is_events(options.file):
        return events.check(options.file, is_file_only=options.file_only)
    if dds_file.is_dds(options.file):
        return dds.check(options.file, is_file_only=options.file_only)
    bridge = file.read(options.file)
    print(f"{options.file}: {len(bridge.streams)} streams, topics {', '.join(bridge.topics)}")
    if options.file_only:
        return 0
    _check_edge(bridge)
    print("the edge answers, and this program may read the cameras")
    _need_kafka()
    from mez.bridge import outlet
    from mez.pipeline.kafka_client import Link

    outlet.check(Link(bridge.kafka))
    print(f"Kafka at {','.join(bridge.kafka.servers)} answers")
    return 0


def _check_edge(bridge: Bridge) -> None:
    """Subscribe as the bridge does, but without its groups, and read no frame.

    Raises:
        Error: The edge is away, or refuses.
    """
    edge = list(bridge.edge) or None
    for stream in bridge.streams.values():
        mez.subscribe(stream.cameras, edge=edge, keys=bridge.keys, **stream.contract).close()
        if stream.is_every:
            # A time that is past when the edge gets it needs the same grants as a group.
            now_ns = time.time_ns()
            mez.subscribe(stream.cameras, edge=edge, keys=bridge.keys, since=now_ns).close()
    if bridge.notes is not None:
        notes.check(bridge.wanted_notes())


def _schema(options: argparse.Namespace) -> int:
    print(_SCHEMAS[options.kind](), end="")
    return 0


def _need_kafka() -> None:
    try:
        importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise MissingPackageError(
            f"a bridge to Kafka needs the package confluent-kafka ({error}); run: pip install 'mez[kafka]'"
        ) from error
