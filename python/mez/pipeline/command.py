"""The command `mez pipeline`."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mez._commands import Commands, Teller, add_state, folder, until_ended
from mez._interrupt import Interrupt
from mez._reports import UNUSABLE
from mez.errors import MissingPackageError
from mez.pipeline import buses, file, function, shipped, status, worker
from mez.pipeline.errors import FileError, StageError
from mez.pipeline.file import Pipeline
from mez.pipeline.status import StageStatus, Status

_EXAMPLES: Final = """\
Examples:
  mez pipeline check faces.toml           is the file valid, do the functions exist, do the buses answer?
  mez pipeline run faces.toml             run it on this host, until Ctrl-C
  mez pipeline status faces.toml --watch  rates, and how many records wait for each stage
  mez pipeline dead faces.toml embed      records that failed in a stage at every try, with the errors
  mez pipeline enrol people/              learn faces; people/ has a folder of pictures for each person
  mez pipeline run faces                  comes with Mez: recognises people
  mez pipeline run objects                comes with Mez: finds objects of 80 classes
  mez pipeline report events              where the time went, by stage

docs/pipelines.md describes stages, the file, and what is promised.
"""
_STATE: Final = "folder for status and logs"


def run(words: Sequence[str]) -> int:
    """Run the command line, and return the exit status."""
    commands = Commands(
        "mez pipeline",
        "Run pipelines: stages that process camera frames, each stage in its own processes.",
        _EXAMPLES,
    )
    running = commands.add(
        "run", _run, "run a pipeline on this host; Ctrl-C finishes waiting records, then ends"
    )
    _add_file(running)
    add_state(running, _STATE)
    checking = commands.add(
        "check", _check, "check a pipeline file and its functions, then whether the buses answer"
    )
    _add_file(checking)
    checking.add_argument(
        "--file-only",
        action="store_true",
        help="check only the file and its functions; do not connect to a bus",
    )
    standing = commands.add("status", _status, "show rates, waiting records, failures and restarts, by stage")
    _add_file(standing)
    add_state(standing, _STATE)
    standing.add_argument("--json", action="store_true", help="print a line of JSON")
    standing.add_argument("--watch", action="store_true", help="refresh every second, until Ctrl-C")
    dead = commands.add(
        "dead", _dead, "list the newest dead letters of a stage: records that failed at every try"
    )
    _add_file(dead)
    dead.add_argument("stage", metavar="STAGE", help="the stage whose function failed")
    enrolling = commands.add(
        "enrol", _enrol, "learn faces from pictures: write the file of known people for the pipeline faces"
    )
    enrolling.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="a folder with one folder of pictures for each person; its name is the person's name",
    )
    enrolling.add_argument(
        "--out",
        type=Path,
        default=Path("people.json"),
        metavar="FILE",
        help="the file to write [people.json]",
    )
    _add_report(commands)
    commands.add("schema", _schema, "print the JSON schema of pipeline files, for editors")
    # What `run` starts.
    working = commands.add_hidden("worker", _worker)
    _add_file(working)
    working.add_argument("stage")
    working.add_argument("number", type=int)
    working.add_argument("hand", type=Path)
    return commands.run(words)


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file",
        type=shipped.place,
        metavar="FILE",
        help=f"the pipeline file (TOML), or one that comes with Mez: {', '.join(shipped.names())}",
    )


def _add_report(commands: Commands) -> None:
    reporting = commands.add("report", _report, "show where the time went, from a folder of events")
    reporting.add_argument(
        "folder", type=Path, metavar="FOLDER", help="the folder of the key events in [pipeline]"
    )
    reporting.add_argument(
        "--picture", type=Path, metavar="FILE", help="also draw the report: FILE.svg or FILE.png"
    )
    reporting.add_argument(
        "--spans",
        type=Path,
        metavar="FILE",
        help="also write OpenTelemetry spans: OTLP as lines of JSON",
    )
    reporting.add_argument(
        "--ai",
        action="append",
        default=[],
        metavar="MARK",
        help="count steps that end with this mark as AI, in addition to marks named ai.…; may be repeated",
    )
    reporting.add_argument("--json", action="store_true", help="print a line of JSON instead of tables")


def _run(options: argparse.Namespace) -> int:
    from mez.pipeline.run import Run

    pipeline = file.read(options.file)
    place = folder("pipelines", pipeline.name, options.state)
    tell = Teller().tell
    return until_ended(
        place,
        "pipeline",
        lambda end: Run(pipeline, place, tell).run(end),
        lambda: tell("ended at once; unfinished records are given again"),
    )


def _check(options: argparse.Namespace) -> int:
    pipeline = file.read(options.file)
    for stage in pipeline.stages.values():
        if stage.run is not None:
            function.check(stage.run, pipeline.path.parent, stage.options)
    print(f"{options.file}: {_way(pipeline)}")
    if options.file_only:
        return 0
    for name in sorted({stage.bus for stage in pipeline.stages.values()} | {"mez"}):
        bus = buses.of(pipeline, name)
        try:
            bus.prepare({})
            print(f"the bus {name} answers")
        finally:
            bus.close()
    return 0


def _way(pipeline: Pipeline) -> str:
    """The stages in a line: `dock/* -mez-> detect x2 -kafka-> embed x4`."""
    parts = []
    for stage in pipeline.stages.values():
        source = stage.after or pipeline.stages[stage.name].source.pattern
        workers = f"x{stage.workers}" if stage.run else "by a program of your own"
        parts.append(f"{source} -{stage.reads_on}-> {stage.name} {workers}")
    return "; ".join(parts)


def _status(options: argparse.Namespace) -> int:
    pipeline = file.read(options.file)
    place = folder("pipelines", pipeline.name, options.state)
    if options.json:
        print(_now(pipeline, place).to_json())
        return 0
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not options.watch:
        console.print(status.shown(_now(pipeline, place)))
        return 0
    with Interrupt() as end, Live(console=console, auto_refresh=False) as live:
        while not end():
            live.update(status.shown(_now(pipeline, place)), refresh=True)
            time.sleep(1.0)
    return 0


def _now(pipeline: Pipeline, place: Path) -> Status:
    """The status from the runner on this host; without a runner, from the buses."""
    told = status.read(place)
    if told is not None:
        return told
    from mez.pipeline.run import standings

    told = Status(pipeline.name, str(pipeline.path), "not running on this host")
    found = standings(pipeline)
    for name in pipeline.stages:
        of = told.stages[name] = StageStatus()
        if name in found:
            of.stand(found[name])
    return told


def _dead(options: argparse.Namespace) -> int:
    pipeline = file.read(options.file)
    stage = pipeline.stages.get(options.stage)
    if stage is None:
        known = ", ".join(pipeline.stages)
        raise StageError(f"{options.file} has no stage {options.stage}; its stages are {known}")
    bus = buses.of(pipeline, stage.reads_on)
    try:
        letters = bus.dead_letters(stage.name)
    finally:
        bus.close()
    for letter in letters:
        print(f"{letter.record} after {letter.tries} tries: {letter.error}")
    if not letters:
        print(f"{stage.name} has no dead letters")
    return 0


def _enrol(options: argparse.Namespace) -> int:
    try:
        from mez.apps.enrol import enrol
    except ImportError as error:
        raise MissingPackageError(f"faces need OpenCV ({error}); run: pip install 'mez[faces]'") from error
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("learning faces", total=None)
        lines = list(
            enrol(
                options.folder,
                options.out,
                lambda done, total: progress.update(bar, completed=done, total=total),
            )
        )
    for line in lines:
        print(line)
    return 0


def _report(options: argparse.Namespace) -> int:
    # Imported here, so that workers start sooner.
    from mez.pipeline import otlp, spans
    from mez.pipeline.report import reading, summary, table

    events = reading.read(options.folder)
    found = summary.summary(events, options.ai)
    if options.json:
        print(json.dumps(found.plain()))
    else:
        from rich.console import Console

        Console().print(table.shown(found))
    if options.picture is not None:
        from mez.pipeline.report import picture

        picture.draw(found, options.picture)
        print(f"written: {options.picture}", file=sys.stderr)
    if options.spans is not None:
        count = otlp.write(spans.of_ways(events.ways, options.ai), options.spans)
        print(f"written: {count} spans in {options.spans}", file=sys.stderr)
    return 0


def _schema(_: argparse.Namespace) -> int:
    print(file.schema(), end="")
    return 0


def _worker(options: argparse.Namespace) -> int:
    try:
        ended = worker.main(file.read(options.file), options.stage, options.number, options.hand)
    except (StageError, FileError) as error:
        print(f"mez pipeline: {error}", file=sys.stderr)
        ended = UNUSABLE
    # Threads of clients may not end by themselves. All finished records are settled.
    sys.stderr.flush()
    os._exit(ended)
