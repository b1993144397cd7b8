"""The command `mez bench`."""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from mez._processes import ProcessError
from mez_bench import machine, report
from mez_bench.errors import ExperimentError
from mez_bench.experiment import Experiment
from mez_bench.experiments import EXPERIMENTS
from mez_bench.run import ROOT, Run, Subject

COLUMNS_WITHOUT_TERMINAL: Final = 120

SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "video": ("contracts",),
    "profile": ("contracts",),
    "app": ("contracts",),
    "only": (
        *("contracts", "groups", "sources", "breakdown", "kept", "page", "pipeline", "aitax", "offload"),
        "dds",
    ),
    "plan": ("cost",),
    "rates": ("cost",),
}
"""Options that say what is measured or computed, and the experiments that take them."""

_DESCRIPTION: Final = """\
Runs an experiment on this checkout and this machine, prints what came out, and
writes bench/results/NAME.json (commit, machine, parameters, metrics with units
in their names, every row) and a plot, bench/results/NAME.svg.

What is compared takes turns (A B A B ...) in one run, so ratios hold on a busy
machine too; absolute times do not. Figures are medians with 95 % intervals.
"""

_EPILOG: Final = """\
examples:
  mez bench --list                   what there is, what it needs, how long it takes
  mez bench log                      the full experiment
  mez bench loopback --quick         within a minute, fewer settings and repeats
  mez bench all --quick --check      every experiment; fails if a target is missed
  mez bench cost --help              what one experiment does, where it tells more

exit code:
  0  the experiment ran
  1  it or a part of it could not be run, or with --check a target was missed
  130  interrupted; nothing was written

MEZ_BENCH_BINARY=target/release/mez measures that binary (built with the feature
`bench` of mez-cli) instead of the installed command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the process's exit status.

    Args:
        arguments: The words after `mez bench`. `None` takes them from the process.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser(words)
    options = parser.parse_args(words)
    # On SIGTERM, clean up as after Ctrl-C: an experiment's folder may hold gigabytes of logs.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Without a terminal, rich would fold tables at 80 columns.
    console = Console(width=None if sys.stdout.isatty() else COLUMNS_WITHOUT_TERMINAL)
    if options.list:
        _list(console)
        return 0
    if options.name is None:
        parser.error("name an experiment; mez bench --list lists them")
    names = list(EXPERIMENTS) if options.name == "all" else [options.name]
    if options.name == "all" and options.json is not None:
        parser.error("--json is for a single experiment; the results of `all` are in bench/results")
    if options.virtual:
        if options.name != "all" and not EXPERIMENTS[options.name].is_virtual:
            parser.error(f"{options.name} runs on sockets, not in virtual time; leave --virtual out")
        names = [name for name in names if EXPERIMENTS[name].is_virtual]
    for word, takers in SUBJECTS.items():
        if getattr(options, word) and options.name not in takers:
            parser.error(f"--{word} is for {', '.join(takers)}")
    missed = failed = False
    for name in names:
        try:
            result = _run(EXPERIMENTS[name], options, console)
        except (ExperimentError, ProcessError) as error:
            print(f"mez bench {name}: {error}", file=sys.stderr)
            return 1
        missed |= any(not target["met"] for target in result["targets"])
        for failure in result["failures"]:
            print(f"mez bench {name}: {failure}", file=sys.stderr)
            failed = True
    return 1 if failed or (missed and options.check) else 0


def _run(experiment: Experiment, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    seconds = experiment.seconds_quick if options.quick else experiment.seconds_full
    where = ", in virtual time" if experiment.is_virtual else ""
    console.print(f"[bold]{experiment.name}[/bold]{where}: {experiment.summary}; about {_duration(seconds)}")
    commit, about = machine.commit(), machine.machine()
    subject = Subject(
        options.video,
        options.profile,
        options.app,
        tuple(options.only),
        tuple(options.plan),
        options.rates,
        options.events,
    )
    with Run(options.quick, options.data, Console(stderr=True), subject) as run:
        outcome = experiment.run(run)
    result = report.document(experiment.name, commit, about, options.quick, outcome)
    written = report.write(result, outcome, options.json)
    report.show(console, result, outcome)
    shown = [path.relative_to(ROOT) if path.is_relative_to(ROOT) else path for path in written]
    console.print(f" written: {', '.join(map(str, shown))}", highlight=False)
    return result


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    # `mez bench NAME --help` shows the experiment's own help, if it has one.
    named = EXPERIMENTS.get(words[0]) if words else None
    own = named if named is not None and named.description is not None else None
    parser = argparse.ArgumentParser(
        prog="mez bench",
        description=_DESCRIPTION if own is None else own.description,
        epilog=_EPILOG if own is None else own.examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", nargs="?", choices=[*EXPERIMENTS, "all"], metavar="NAME", help="an experiment, or all of them"
    )
    parser.add_argument("--list", action="store_true", help="tell what there is")
    parser.add_argument(
        "--quick", action="store_true", help="be done within a minute: fewer settings, fewer repeats, no p99"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file as well")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        default=Path(os.environ["MEZ_BENCH_DATA"]) if "MEZ_BENCH_DATA" in os.environ else None,
        help="measurements that others published, for experiments that need them (or MEZ_BENCH_DATA)",
    )
    parser.add_argument("--video", type=Path, metavar="FILE", help="contracts: another video than the demo's")
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="contracts: the profile of a detector on that video"
    )
    parser.add_argument(
        "--app",
        metavar="APP",
        help="contracts: that detector, as mez profile run takes it [default: the profile's]",
    )
    parser.add_argument(
        "--only",
        type=lambda words: words.split(","),
        default=[],
        metavar="PARTS",
        help="experiments that have parts, such as contracts: only these, with commas between",
    )
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        action="append",
        default=[],
        help="cost: a data centre in TOML instead of the paper's two; may be given several times",
    )
    parser.add_argument("--rates", type=Path, metavar="FILE", help="cost: what nodes carry, in TOML")
    parser.add_argument(
        "--events",
        type=Path,
        metavar="DIR",
        help="acceleration: events of your own pipeline, whose measured shares of AI are taken too",
    )
    parser.add_argument(
        "--virtual",
        action="store_true",
        help="insist on virtual time: an experiment that runs on sockets is refused, and left out of `all`",
    )
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    return parser


def _list(console: Console) -> None:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 1))
    for column in ("name", "what", "needs"):
        table.add_column(column, overflow="fold")
    table.add_column("quick", justify="right", no_wrap=True)
    table.add_column("full", justify="right", no_wrap=True)
    for experiment in EXPERIMENTS.values():
        table.add_row(
            experiment.name,
            experiment.summary,
            experiment.needs,
            _duration(experiment.seconds_quick),
            _duration(experiment.seconds_full),
        )
    console.print(table)


def _duration(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"
