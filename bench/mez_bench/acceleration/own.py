"""Reads the measured shares of AI of a user's own pipeline, from its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mez.pipeline.errors import EventsError
from mez.pipeline.report import reading
from mez.pipeline.report.steps import Kind
from mez.pipeline.report.summary import summary
from mez_bench.errors import ExperimentError


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of AI in a pipeline's time.

    Attributes:
        pipeline: Name of the pipeline.
        records: How many records were used.
        stages: For each stage that marks AI: AI's share of the time in the stage's function.
        whole: AI's share of the time from end to end, with all waiting.
        unmarked: Stages whose share is unknown, because their functions mark no AI.
    """

    pipeline: str
    records: int
    stages: Mapping[str, float]
    whole: float
    unmarked: tuple[str, ...]


def shares(folder: Path) -> Shares:
    """Read the shares from a folder of events.

    Args:
        folder: The folder that `events` of `[pipeline]` names.

    Raises:
        ExperimentError: There are no events, or no stage marks what is AI.
    """
    try:
        events = reading.read(folder)
    except EventsError as error:
        raise ExperimentError(f"--events: {error}") from error
    found = summary(events)
    stages = {name: of.ai_share for name, of in found.stages.items() if of.ai_share is not None}
    if not stages:
        raise ExperimentError(
            f"--events: no stage of {folder} marks what is AI; call record.mark('ai.detected') when it ends"
        )
    unmarked = tuple(name for name in found.stages if name not in stages)
    return Shares(found.pipeline, len(events.ways), stages, found.shares.get(Kind.AI, 0.0), unmarked)
