"""The command `mez profile`: reads its command line, and runs it."""

import argparse
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from mez.errors import Error
from mez.profile import document, families, interval, store, tables
from mez.profile.app import SPECS
from mez.profile.coding import H264_ENCODER
from mez.profile.console import Bar
from mez.profile.crew import Crew, Job
from mez.profile.document import About, Profile, RungProfile
from mez.profile.errors import ProfileError
from mez.profile.make import FRAMES_DEFAULT, Made, ceiling_of, make
from mez.profile.record import SECONDS_DEFAULT, record
from mez.profile.report import page, plot
from mez.profile.report.examples import examples
from mez.profile.stream import command as stream

_COLUMNS: Final = 120
"""Width of the output if it is not a terminal."""

_WORKERS_MAX: Final = 256
_SECONDS_MAX: Final = 3600.0

_DESCRIPTION: Final = """\
Measures how far frames can be compressed before your detector misses objects.
Encodes a video at many settings (rungs) with the same code as for live frames, and
runs your detector on the decoded frames. Compares its results with those on the
original frames. Writes a profile for mez.subscribe(profile=…) and a report for people.
"""

_EPILOG: Final = """\
examples:
  mez profile run --app pedestrian-hog --video street.mp4
  mez profile run --app my_detector.py:detect --video dock.mkv --out dock.json
  mez profile run --app my_detector.py:detect --video day.mkv --video night.mkv
  mez profile run --app my_detector.py:detect --camera dock/cam1 --edge edge.local
  mez profile run --app onnx:yolov8n.onnx --video dock.mkv --families h264,jpeg
  mez profile run --stream records/ --app mine.py:find --accuracy mine.py:agreement \
    --knobs mine.py:KNOBS
  mez profile show dock.json
  mez profile compare dock.json street.json
  mez profile import jaad-simple.csv --out jaad.json

For pictures, an application is a function that takes an image (height x width x 3, BGR, uint8)
and returns boxes (left, top, right, bottom, score) in its pixels, or boxes in another form
that Frame.reply accepts. If it has a parameter camera_size, it also gets the size of the
published frames: (width, height). For data records, the function takes a record as in
frame.data, and returns a result of any kind.
"""


def run(arguments: Sequence[str]) -> int:
    """Run the command and return the process's exit status."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _COLUMNS)
    try:
        return int(options.action(options, console) or 0)
    except (Error, OSError) as error:
        print(f"mez profile: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "mez profile: interrupted; measurements are kept; to continue, run the same command again",
            file=sys.stderr,
        )
        return 130


def _run(options: argparse.Namespace, console: Console) -> None:
    if stream.is_wanted(options):
        _run_stream(options, console)
        return
    named = "-".join([path.stem for path in options.video] or [_stem(options.camera.replace("/", "-"))])
    out: Path = options.out or Path(f"{_stem(options.app)}-{named}.json")
    report: Path = options.report or out.with_name(f"{out.stem}-report")
    if not options.video and options.camera is None:
        raise ProfileError(
            "there is nothing to profile on; give a video (--video) or a live camera (--camera)"
        )
    if not options.families and not options.rungs:
        raise ProfileError("there is nothing to measure; give families (--families) or rungs (--rungs)")
    videos = list(options.video)
    if options.camera is not None:
        with Bar(Console(stderr=True)) as bar:
            videos.append(record(options.camera, out.parent, options.seconds, options.edge, bar))
    job = Job(
        tuple(videos),
        options.app,
        options.strong,
        options.weak,
        options.cache,
        h264_encoder=options.h264_encoder,
    )
    with Crew(job, options.workers) as crew, Bar(Console(stderr=True)) as bar:
        footage, app = crew.lead.footage, crew.lead.app
        chosen = [families.family(name, footage.width) for name in options.families]
        made = make(crew, chosen, bar, options.frames, options.rungs)
        pictures = examples(made, footage, app.thresholds)
    data = made.profile.to_bytes()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(data)
    page.write(report / "index.html", made.profile, pictures, made.cost)
    written = [out, report / "index.html"]
    drawn = [report / "frontier.svg", report / "frontier.png"]
    try:
        plot.draw({out.stem: made.profile}, drawn)
        written += drawn
    except ProfileError as error:
        print(f"mez profile: no pictures: {error}", file=sys.stderr)
    _show_profile(made.profile, console)
    _show_cost(made, console)
    console.print(f" written: {', '.join(map(str, written))}", highlight=False)


def _run_stream(options: argparse.Namespace, console: Console) -> None:
    made = stream.run(options)
    named = options.stream[0].stem if options.stream else _stem(options.camera.replace("/", "-"))
    out: Path = options.out or Path(f"{_stem(options.app)}-{named}.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(made.profile.to_bytes())
    _show_profile(made.profile, console)
    cost = made.cost
    console.print(
        f" measured {cost.rungs_measured} of {cost.rungs} rungs on all records, and {cost.rungs_screened} on "
        f"few: {cost.share:.0%} of the results of a full measurement; "
        f"{cost.seconds / 60:.1f} min",
        highlight=False,
    )
    console.print(f" written: {out}", highlight=False)


def _show(options: argparse.Namespace, console: Console) -> None:
    profile = document.load(options.profile)
    _show_profile(profile, console)
    if options.report is not None:
        page.write(options.report / "index.html", profile)
        plot.draw(
            {options.profile.stem: profile},
            [options.report / "frontier.svg", options.report / "frontier.png"],
        )
        console.print(f" written: {options.report}", highlight=False)


def _compare(options: argparse.Namespace, console: Console) -> None:
    profiles = {path.stem: document.load(path) for path in options.profiles}
    if len(profiles) < len(options.profiles):
        raise ProfileError("two of the profiles have the same file name; rename one")
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    table.add_column("accuracy at least", justify="right")
    for name in profiles:
        table.add_column(f"{name}: bytes", justify="right")
        table.add_column("rung")
    for floor in options.floors:
        cells = [f"{floor:g}"]
        for profile in profiles.values():
            best = profile.cheapest(floor)
            cells += ["-", "none"] if best is None else [f"{best.bytes_per_published_frame:,.0f}", best.rung]
        table.add_row(*cells)
    console.print(table)
    for name, profile in profiles.items():
        about = profile.about
        console.print(f" {name}: {about.app} on {about.video}, {_what(about)}", highlight=False)
    apps = {profile.about.app_sha256 for profile in profiles.values()}
    videos = {profile.about.video_sha256 for profile in profiles.values()}
    if len(apps) > 1 or len(videos) > 1:
        console.print(
            " note: the applications or videos differ; each accuracy is relative to its own reference"
        )
    if options.picture is not None:
        plot.draw(profiles, [options.picture])
        console.print(f" written: {options.picture}", highlight=False)


def _import(options: argparse.Namespace, console: Console) -> None:
    profile = tables.load(options.table)
    out: Path = options.out or Path(f"{options.table.stem}.json")
    out.write_bytes(profile.to_bytes())
    _show_profile(profile, console)
    console.print(f" written: {out}", highlight=False)


def _show_profile(profile: Profile, console: Console) -> None:
    about = profile.about
    console.print(f"[bold]{about.app}[/bold] on {about.video}, {_what(about)}", highlight=False)
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    columns = ["rung", "bytes", "p95", "accuracy", "95 % interval", "strict", "camera ms", "detector ms"]
    columns += [scene.video for scene in about.scenes]
    for column in columns:
        table.add_column(column, justify="left" if column == "rung" else "right", no_wrap=True)
    for rung in profile.frontier:
        table.add_row(*_cells(rung), *(f"{score.value:.3f}" for score in rung.accuracy_by_scene))
    console.print(table)
    if about.scenes:
        console.print(
            " accuracy is that of the scene where it is lowest; the last columns show each scene",
            highlight=False,
        )
    ceiling, strict = ceiling_of(about), ceiling_of(about, strict=True)
    if ceiling is not None and strict is not None:
        console.print(
            f" the detector's own ceiling: {ceiling.value:.3f} (strict {strict.value:.3f}); set "
            "no floor above it",
            highlight=False,
        )
    console.print(f" {len(profile.rungs)} rungs, name {profile.name}", highlight=False)


def _what(about: About) -> str:
    """Return what a profile was measured on, in a few words."""
    if about.width == 0:
        return f"{about.frames_scored} records"
    return f"{about.width}x{about.height}, {about.frames_scored} frames"


def _cells(rung: RungProfile) -> tuple[str, ...]:
    score, strict = rung.accuracy_normalised, rung.accuracy_normalised_strict
    known = score.low is not None and score.high is not None
    return (
        rung.rung,
        f"{rung.bytes_per_published_frame:,.0f}",
        f"{rung.bytes.p95:,.0f}",
        f"{score.value:.3f}",
        f"{score.low:.3f} to {score.high:.3f}" if known else "",
        f"{strict.value:.3f}" if strict is not None else "",
        f"{rung.camera_ms_mean:.1f}" if rung.camera_ms_mean is not None else "",
        f"{rung.detector_ms_mean:.0f}" if rung.detector_ms_mean is not None else "",
    )


def _show_cost(made: Made, console: Console) -> None:
    cost = made.cost
    console.print(
        f" measured {cost.rungs_measured} of {cost.rungs} rungs on all frames, and {cost.rungs_screened} on "
        f"few: {cost.share:.0%} of the frames of a full measurement; {cost.seconds / 60:.1f} min",
        highlight=False,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mez profile",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(metavar="run | show | compare | import", required=True)
    add = functools.partial(
        actions.add_parser, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _run_parser(
        add(
            "run",
            help="profile an application on a video",
            epilog="example:\n  mez profile run --app pedestrian-hog --video street.avi --report report",
        )
    )
    show = add("show", help="show a profile", epilog="example:\n  mez profile show people.json")
    show.add_argument("profile", type=Path, metavar="FILE", help="profile to show")
    show.add_argument("--report", type=Path, metavar="DIR", help="folder for a report without frames [none]")
    show.set_defaults(action=_show)
    compare = add(
        "compare",
        help="compare profiles at several accuracy floors",
        epilog="example:\n  mez profile compare day.json night.json --floors 0.9,0.95",
    )
    compare.add_argument("profiles", type=Path, nargs="+", metavar="FILE", help="profiles to compare")
    compare.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw the profiles into this .svg or .png [none]"
    )
    compare.add_argument(
        "--floors",
        type=_floors,
        default=[0.9, 0.95, 0.96, 0.98],
        metavar="N,N",
        help="accuracy floors to compare at [0.9,0.95,0.96,0.98]",
    )
    compare.set_defaults(action=_compare)
    take = add(
        "import",
        help="convert a published knob table to a profile",
        epilog="example:\n  mez profile import tables/scene1.csv",
    )
    take.add_argument(
        "table", type=Path, metavar="FILE.csv", help="knob table that the authors of Mez published"
    )
    take.add_argument(
        "--out", type=Path, metavar="FILE", help="file for the profile [the table's name, .json]"
    )
    take.set_defaults(action=_import)
    return parser


def _run_parser(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--app",
        required=True,
        metavar="APP",
        help=f"your detector: {SPECS}",
    )
    add(
        "--video",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="video, or folder of pictures. Repeat the option for several scenes of one camera (day and "
        "night); the accuracy of a rung is then the lowest of all scenes",
    )
    add(
        "--camera",
        metavar="NAME",
        help="first record a live camera, as a scene; its frames are kept in a folder beside the profile",
    )
    add("--edge", metavar="HOST", help="edge broker of --camera [MEZ_EDGE; else the edge of this host]")
    add(
        "--seconds",
        type=_seconds,
        default=SECONDS_DEFAULT,
        metavar="N",
        help=f"seconds that --camera records [{SECONDS_DEFAULT:g}]",
    )
    add(
        "--families",
        type=lambda text: [name for name in text.split(",") if name],
        default=list(families.DEFAULT),
        metavar="A,B",
        help=f"families to search: {', '.join(families.NAMES)} [{','.join(families.DEFAULT)}]",
    )
    add(
        "--rungs",
        type=lambda text: [name for name in text.split(",") if name],
        default=[],
        metavar="A,B",
        help="rungs to measure in addition to the search [none]",
    )
    add(
        "--frames",
        type=int,
        default=FRAMES_DEFAULT,
        metavar="N",
        help=f"frames of each scene to measure, at least {interval.FRAMES_MIN}; for a precision of 0.01 "
        f"in F1, about 120 are needed [{FRAMES_DEFAULT}]",
    )
    add(
        "--workers",
        type=_workers,
        default=os.cpu_count() or 1,
        metavar="N",
        help=f"number of worker processes [number of processors: {os.cpu_count()}]",
    )
    add(
        "--strong",
        type=float,
        metavar="SCORE",
        help="a box with at least this score is a detection [the application's own value, or 0.5]",
    )
    add(
        "--weak",
        type=float,
        metavar="SCORE",
        help="a box with at least this score still counts as found [the application's own value, or 0.6 of "
        "--strong]",
    )
    add(
        "--h264-encoder",
        default=H264_ENCODER,
        metavar="ENCODER",
        help=f"H.264 encoder, as in mez camera: openh264, or x264 if the build contains it [{H264_ENCODER}]",
    )
    add("--out", type=Path, metavar="FILE", help="file for the profile [APP-VIDEO.json]")
    add("--report", type=Path, metavar="DIR", help="folder for the report [the profile's name, -report]")
    add(
        "--cache",
        type=Path,
        default=store.folder(),
        metavar="DIR",
        help=f"folder for measurements, so that a run can continue; also {store.CACHE} [{store.folder()}]",
    )
    stream.add_options(parser)
    parser.set_defaults(action=_run)


def _stem(app: str) -> str:
    """Return an application's name as a part of a file name."""
    name = app.partition(":")[2] or app
    return Path(name).stem.replace(" ", "-")


def _workers(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _WORKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and {_WORKERS_MAX}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 1 <= value <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and {_SECONDS_MAX:g} seconds")
    return value


def _floors(text: str) -> list[float]:
    values = [float(item) for item in text.split(",")]
    if not all(0 <= value <= 1 for value in values):
        raise argparse.ArgumentTypeError(f"{text}: give accuracies between 0 and 1")
    return values
