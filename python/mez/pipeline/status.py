"""The status of a pipeline: a file that `run` writes each second, and a table for people."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mez._commands import runs
from mez.pipeline.bus import Standing

if TYPE_CHECKING:
    from rich.console import Group

FILE: Final = "status.json"

_HEADS: Final = (
    "WORKERS", "IN/S", "OUT/S", "WAITING", "OPEN", "WAIT MS", "WORK MS", "FAILED", "DEAD", "LOST",
    "AGAIN", "MIB",
)  # fmt: skip


@dataclass(slots=True)
class StageStatus:
    """The status of a stage.

    Attributes:
        workers: Workers on this host.
        ready: Workers that have joined their group.
        taken_per_s: Records that the workers got per second, over the last five seconds.
        made_per_s: Records that they put on the bus per second, over the same time.
        waiting: Records on the bus that wait for a worker of this stage on any host. `None`: unknown.
        open: Records that were given to workers on any host and are not settled. `None`: part of `waiting`.
        work_ms: The mean time in the stage's function, in milliseconds. `None` before the first record.
        waited_ms: The mean time for which records waited for a worker, in milliseconds. `None` if unknown.
        taken: Records that the workers got since the pipeline was started.
        made: Records that they put on the bus.
        failed: Tries that failed.
        dead: Dead letters.
        lost: Records that the bus dropped before they were given.
        restarts: How often workers were restarted.
        memory_mib: The memory of all its workers, in MiB.
        note: A note for people. Empty if there is none.
    """

    workers: int = 0
    ready: int = 0
    taken_per_s: float = 0.0
    made_per_s: float = 0.0
    waiting: int | None = None
    open: int | None = None
    work_ms: float | None = None
    waited_ms: float | None = None
    taken: int = 0
    made: int = 0
    failed: int = 0
    dead: int = 0
    lost: int = 0
    restarts: int = 0
    memory_mib: float = 0.0
    note: str = ""

    def stand(self, standing: Standing) -> None:
        """Take over the progress from the bus."""
        self.waiting, self.open = standing.waiting, standing.open
        self.dead, self.lost = standing.dead, standing.lost


@dataclass(slots=True)
class Status:
    """The status of a pipeline.

    Attributes:
        pipeline: Its name.
        path: Its file.
        state: `starting`, `running`, `draining`, `ended`; `not running`: no `mez pipeline run` on this host.
        pid: The process that runs it; 0: none.
        at_ns: The time of this status, in nanoseconds since 1970-01-01 UTC.
        stages: Its stages, in the order in which records pass them.
    """

    pipeline: str
    path: str
    state: str
    pid: int = 0
    at_ns: int = field(default_factory=time.time_ns)
    stages: dict[str, StageStatus] = field(default_factory=dict)

    def to_json(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Status":
        """The status from the text of `to_json`.

        Raises:
            ValueError: The text is not a status, or of another version.
        """
        told: Mapping[str, Any] = json.loads(text)
        try:
            known = {of.name for of in fields(StageStatus)}
            stages = {
                name: StageStatus(**{key: value for key, value in of.items() if key in known})
                for name, of in told["stages"].items()
            }
            return cls(told["pipeline"], told["path"], told["state"], told["pid"], told["at_ns"], stages)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a status: {error}") from error


def write(place: Path, status: Status) -> None:
    """Write the status atomically: a reader finds either the old one or the new one."""
    unfinished = place / f".{FILE}"
    unfinished.write_text(status.to_json() + "\n")
    unfinished.replace(place / FILE)


def read(place: Path) -> Status | None:
    """The status of a pipeline that runs on this host. `None` if it does not run here."""
    if not runs(place):
        return None
    try:
        return Status.from_json((place / FILE).read_text())
    except (OSError, ValueError):
        return None


def shown(status: Status) -> "Group":
    """The status as a table for people, 80 columns wide, with notes below it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = f"pipeline {status.pipeline}: {status.state}"
    table = Table(title=title, title_justify="left", box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("STAGE", no_wrap=True)
    for head in _HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for name, of in status.stages.items():
        table.add_row(
            name,
            f"{of.ready}/{of.workers}" if of.workers else "-",
            f"{of.taken_per_s:.1f}",
            f"{of.made_per_s:.1f}",
            _whole(of.waiting),
            _whole(of.open),
            _decimal(of.waited_ms),
            _decimal(of.work_ms),
            str(of.failed),
            str(of.dead),
            str(of.lost),
            str(of.restarts),
            f"{of.memory_mib:.0f}",
        )
    notes = [Text(f"{name}: {of.note}") for name, of in status.stages.items() if of.note]
    return Group(table, *notes)


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
