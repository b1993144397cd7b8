"""Provides for one run of an experiment: its folders, its processes, and the progress that is shown."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mez_bench.children import Children
from mez_bench.errors import ExperimentError

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout."""

CACHE: Final = ROOT / ".cache" / "bench"
"""Keeps what is built or fetched for experiments."""

LINE_INTERVAL_S: Final = 10.0
"""Interval of progress lines where there is no terminal."""


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a run that has its own folder and processes, so that several may run at once."""

    folder: Path
    children: Children


@dataclass(frozen=True, slots=True)
class Subject:
    """What an experiment is run on, where the user chooses.

    Attributes:
        video: The video that cameras publish.
        profile: The profile of the detector on this video.
        app: The detector, as `mez profile run --app` names it.
        only: The parts of the experiment to run; empty: all.
        plans: Data centres; empty: those that come with the experiment.
        rates: The rates that nodes carry.
        events: Folder with the events of a pipeline.
    """

    video: Path | None = None
    profile: Path | None = None
    app: str | None = None
    only: tuple[str, ...] = ()
    plans: tuple[Path, ...] = ()
    rates: Path | None = None
    events: Path | None = None


DEMO: Final = Subject()
"""The defaults: the demo's video, its detector and profile, and the files that come with an experiment."""


class Run:
    """A run of an experiment: its options, folder, processes and progress.

    Args:
        quick: Whether to finish within about a minute.
        data: Folder with measurements that others published, where given.
        console: Where progress is shown.
        subject: What the experiment runs on, if the user may choose.
    """

    def __init__(self, quick: bool, data: Path | None, console: Console, subject: Subject = DEMO) -> None:
        self.quick = quick
        self.data = data
        self.subject = subject
        self.console = console
        self.folder = Path(tempfile.mkdtemp(prefix="mez-bench-"))
        self.children = Children(self.folder)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=None)
        self._done = 0
        self._total: int | None = None
        self._told_at_s = 0.0

    def __enter__(self) -> Self:
        """Begin."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes, and remove what they left."""
        self._progress.stop()
        try:
            self.children.__exit__(kind, error, trace)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def parts(self, known: Sequence[str]) -> tuple[str, ...]:
        """Return the parts of an experiment to run, in the order of `known`: with `--only`, the named ones.

        Raises:
            ExperimentError: `--only` names an unknown part.
        """
        unknown = [part for part in self.subject.only if part not in known]
        if unknown:
            raise ExperimentError(f"--only takes {', '.join(known)}; {unknown[0]} is none of them")
        return tuple(part for part in known if not self.subject.only or part in self.subject.only)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Use a folder of its own for the block, and end the block's processes with it."""
        folder, children = self.folder, self.children
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        try:
            with Children(self.folder) as self.children:
                yield
        finally:
            self.folder, self.children = folder, children

    def expect(self, steps: int) -> None:
        """Set the total number of steps."""
        self._total = steps
        self._progress.update(self._task, total=steps)

    def step(self, what: str, done: int = 1) -> None:
        """Report `done` more steps, and what runs."""
        self._done += done
        self._progress.update(self._task, description=what, completed=self._done)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._told_at_s >= LINE_INTERVAL_S:
            self._told_at_s = now
            of = "" if self._total is None else f"{self._done} of {self._total}: "
            self.console.print(f"{of}{what}", highlight=False)

    def say(self, text: str) -> None:
        """Print a line that stays on the screen."""
        self.console.print(text, highlight=False)
