"""Runs `mez profile run` on streams of data records."""

import argparse
from pathlib import Path
from typing import Final

from rich.console import Console

from mez.profile.console import Bar
from mez.profile.errors import AppError, ProfileError
from mez.profile.record import record
from mez.profile.stream import records, task
from mez.profile.stream.grid import Spec
from mez.profile.stream.make import Made, make

_NEEDS: Final = "a stream of data records needs --app, --accuracy and --knobs"


def is_wanted(options: argparse.Namespace) -> bool:
    """Tell whether the options are for a stream of data records."""
    return bool(options.stream or options.knobs or options.accuracy)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of streams."""
    group = parser.add_argument_group("streams of data records (send_data)")
    group.add_argument(
        "--stream",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help=f"recording: {records.READS}. With several recordings, the "
        "application gets a list: the record at the same place of each",
    )
    group.add_argument(
        "--accuracy",
        metavar="FUNCTION",
        help="your function that compares two results of the application, for a record as published and "
        f"for a degraded one, and returns 0 (useless) to 1 (as good): {task.SPEC}",
    )
    group.add_argument(
        "--knobs", metavar="KNOBS", help=f"the knobs of the stream, as in mez.publisher: {task.SPEC}"
    )
    group.add_argument(
        "--rate", type=_rate, metavar="N", help="records per second of a stream, for the profile [unknown]"
    )
    group.add_argument(
        "--exhaustive", action="store_true", help="measure every rung on all records, without a search"
    )


def run(options: argparse.Namespace) -> Made:
    """Make the profile for these options.

    Raises:
        ProfileError: The options do not fit together, or the profile cannot be made.
    """
    if not (options.accuracy and options.knobs):
        missing = "--accuracy" if not options.accuracy else "--knobs"
        raise ProfileError(f"{missing} is missing; {_NEEDS}")
    if options.video:
        raise ProfileError("--video is for pictures; give the recording of a data stream with --stream")
    paths = list(options.stream)
    # Checked before a recording, which takes a minute.
    spec = task.named(options.knobs, "--knobs")
    if not isinstance(spec, Spec):
        raise AppError(f"{options.knobs} is a {type(spec).__name__}; --knobs takes a mez.Knobs")
    with Bar(Console(stderr=True)) as bar:
        if options.camera is not None:
            folder = Path(options.out).parent if options.out else Path()
            paths.append(record(options.camera, folder, options.seconds, options.edge, bar, data=True))
        if not paths:
            raise ProfileError(
                "there is nothing to profile on; give a recording (--stream) or a live stream (--camera)"
            )
        streams = [records.load(path) for path in paths]
        return make(
            streams,
            spec,
            task.load(options.app, options.accuracy, streams),
            records=options.frames,
            per_second=options.rate,
            exhaustive=options.exhaustive,
            progress=bar,
        )


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value <= 10_000:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 10000 records per second")
    return value
