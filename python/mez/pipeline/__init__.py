"""`mez.pipeline`: stages in processes of their own, joined by a bus (docs/pipelines.md).

A stage is a function from a record to records:

```python
def detect(record):
    for box in find(record.image):
        yield record.picture(record.image[box])
```

A pipeline file names the stages, how many workers each has, and the bus. `mez pipeline run FILE` runs it.

| module | the question it answers |
| --- | --- |
| `record`, `envelope` | what is a record, and how does it travel? |
| `file`, `keys` | what does a pipeline file say? |
| `bus` | what do stages need of a bus? |
| `mez_bus`, `kafka_bus`, `buses` | how do Mez and Kafka keep that? |
| `function`, `worker`, `events` | what does a worker do with a record? |
| `spans`, `otlp` | how are OpenTelemetry spans made and sent? |
| `report` | where did the time of records go? |
| `run` (and `mez._crew`) | how are workers started, restarted, and ended in order? |
| `status`, `command` (and `mez._waits`) | what do people see and type? |
"""

from collections.abc import Sequence

from mez.pipeline.errors import (
    BusAwayError,
    BusError,
    BusRefusedError,
    FileError,
    PipelineError,
    RecordTooLargeError,
    StageError,
)
from mez.pipeline.record import Hop, Record

__all__ = [
    "BusAwayError",
    "BusError",
    "BusRefusedError",
    "FileError",
    "Hop",
    "PipelineError",
    "Record",
    "RecordTooLargeError",
    "StageError",
    "main",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `mez pipeline` and return its exit code: 0 if it did what was asked, 1 if it could not.

    Args:
        arguments: The words after `mez pipeline`. `None` takes them from the process.
    """
    import sys

    # Imported here, because a stage that imports Record does not need the command.
    from mez.pipeline.command import run

    return run(sys.argv[1:] if arguments is None else arguments)
