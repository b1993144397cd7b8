"""Writes the spans of a pipeline as lines of JSON, and sends those of a running stage."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from mez._otlp import LINE_SPANS_MAX, Exporter, encoded
from mez._spans import Span
from mez.pipeline.errors import PipelineError
from mez.pipeline.record import Hop, Record
from mez.pipeline.spans import of_hop, way_of


def write(spans: Iterable[Span], path: Path) -> int:
    """Write a file of messages, a line each; return how many spans it has.

    Raises:
        PipelineError: The file cannot be written.
    """
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            held: list[Span] = []
            for span in spans:
                held.append(span)
                if len(held) == LINE_SPANS_MAX:
                    count += _line(file, held)
                    held = []
            if held:
                count += _line(file, held)
    except OSError as error:
        raise PipelineError(f"{path} cannot be written ({error.strerror}); give another file") from error
    return count


def _line(file: IO[bytes], spans: Sequence[Span]) -> int:
    file.write(encoded(spans) + b"\n")
    return len(spans)


class Traces:
    """Sends the spans of a stage's work.

    Args:
        pipeline: The pipeline's name.
        endpoint: As for `Exporter`.
    """

    def __init__(self, pipeline: str, endpoint: str) -> None:
        self._pipeline = pipeline
        self._exporter = Exporter(endpoint)

    def worked(self, ways: Iterable[tuple[Record, tuple[Hop, ...]]]) -> None:
        """Send the spans of records that a stage has made of one record, and of the way to the stage."""
        known: set[str] = set()
        for record, hops in ways:
            found = of_hop(way_of(record, self._pipeline, hops), len(hops) - 1)
            # Records that were made of one record share spans.
            self._exporter.put(span for span in found if span.id not in known)
            known |= {span.id for span in found}

    def close(self) -> None:
        """Send the spans that wait, for a short time."""
        self._exporter.close()
