"""Shows a report to people, 80 columns wide, with notes below it."""

import math
from typing import TYPE_CHECKING, Final

from mez.pipeline.report.reading import told
from mez.pipeline.report.steps import Kind
from mez.pipeline.report.summary import StageSummary, Summary

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_HEADS: Final = {
    Kind.INGESTION: "INGEST",
    Kind.WAITING: "WAITING",
    Kind.PRE: "PRE",
    Kind.AI: "AI",
    Kind.POST: "POST",
    Kind.WORK: "WORK",
}


def shown(summary: Summary) -> "Group":
    """The report as tables."""
    from rich.console import Group
    from rich.text import Text

    # As plain text: names of stages and files may look like markup.
    notes = [Text(f"note: {note}") for note in notes_of(summary)]
    return Group(_stages(summary), _ingestion(summary), *notes)


def _table(title: str, *heads: str) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column(heads[0], no_wrap=True)
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _stages(summary: Summary) -> "Table":
    whole = summary.whole
    title = (
        f"pipeline {summary.pipeline}: {len(summary.ways)} records, mean {_ms(whole.mean)} ms, "
        f"p99 {_ms(whole.p99)} ms; {summary.waiting_share:.1%} of the time waiting"
    )
    kinds = [kind for kind in Kind if any(kind in stage.kinds for stage in summary.stages.values())]
    table = _table(title, "STAGE (mean, p99 ms)", "RECORDS", *(_HEADS[kind] for kind in kinds), "AI %", "MAX")
    for stage in summary.stages.values():
        for word in ("mean", "p99"):
            cells = [_ms(getattr(stage.kinds[kind], word)) if kind in stage.kinds else "-" for kind in kinds]
            if word == "mean":
                table.add_row(stage.name, str(stage.records), *cells, *_amdahl(stage))
            else:
                table.add_row("  p99", "", *cells, "", "")
    shares = [f"{summary.shares.get(kind, 0.0):.1%}" for kind in kinds]
    table.add_row("share of all time", "", *shares, "", "")
    return table


def _amdahl(stage: StageSummary) -> tuple[str, str]:
    share, most = stage.ai_share, stage.faster_max
    if share is None or most is None:
        return "-", "-"
    return f"{share * 100:.0f}", "∞" if math.isinf(most) else f"{most:.1f}x"


def _ingestion(summary: Summary) -> "Table":
    heads = ("FRAMES", "CAMERAS", "EVERY MS", "A SET MS", "DELAY MS", "P99", "GROWS MS/S")
    table = _table("", "INGESTION", *heads)
    for stage, of in summary.ingestion.items():
        table.add_row(
            stage,
            str(of.frames),
            str(of.cameras),
            "-" if of.interval_ms is None else _ms(of.interval_ms),
            _ms(of.set_ms),
            _ms(of.delay_ms_mean),
            _ms(of.delay_ms_p99),
            "-" if of.growth_ms_per_s is None else f"{of.growth_ms_per_s:z.1f}",
        )
    return table


def notes_of(summary: Summary) -> list[str]:
    """Notes that a reader of the figures needs."""
    notes = [f"left out: {', '.join(told(summary.left_out))}"] if summary.left_out else []
    undivided = [name for name, stage in summary.stages.items() if Kind.WORK in stage.kinds]
    if undivided:
        notes.append(
            f'{", ".join(undivided)}: no mark says which part is AI; call record.mark("ai.NAME") after it, '
            "or name its mark with --ai"
        )
    for stage, of in summary.ingestion.items():
        if of.interval_ms is not None and of.set_ms > of.interval_ms:
            notes.append(
                f"{stage} needs {_ms(of.set_ms)} ms for a set of frames that comes every "
                f"{_ms(of.interval_ms)} ms: its delay grows by {of.expected_ms_per_s:.0f} ms/s while that "
                "lasts; give it more workers"
            )
    return notes + _clock_notes(summary)


def _clock_notes(summary: Summary) -> list[str]:
    clocks, notes = summary.clocks, []
    if clocks.captured_error_ms is not None:
        notes.append(f"the error of capture times is at most {_ms(clocks.captured_error_ms)} ms")
    if clocks.captured_unknown:
        notes.append(
            f"the capture times of {clocks.captured_unknown} records are by a wall clock; their error is "
            "unknown"
        )
    for stage, count in clocks.across.items():
        smallest = clocks.smallest_ms[stage]
        least = f"; these clocks differ by at least {_ms(-smallest)} ms" if smallest < 0 else ""
        notes.append(
            f"{count} steps before {stage} are measured with the clocks of two hosts: their error is the "
            f"unknown difference of the hosts' wall clocks{least}"
        )
    return notes


def _ms(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.1f}"
