"""A bridge for events whose edge hangs."""

import io
import threading
from pathlib import Path
from typing import Any

import pytest

from mez._commands import Teller
from mez.bridge.events import file, run
from mez.errors import ConnectError
from tests.bridge_files import written
from tests.test_events_parts import SMALL, event


class Hangs:
    """An edge that answers once the test is over."""

    def __init__(self) -> None:
        """It hangs."""
        self.over = threading.Event()
        self.has_answered = False

    def get(self, _path: str) -> Any:  # noqa: ANN401
        """Answer late."""
        self.over.wait(20)
        self.has_answered = True
        raise ConnectError("the edge does not answer")

    def close(self) -> None:
        """Close nothing."""


class Broken(Hangs):
    """An edge that answers something else."""

    def get(self, _path: str) -> Any:  # noqa: ANN401
        """Answer."""
        return {}


def bridge_of(tmp_path: Path, edge: Hangs, monkeypatch: pytest.MonkeyPatch) -> run.EventsRun:
    """A bridge to this edge, and to a webhook that nobody answers."""
    monkeypatch.setattr(run, "opened", lambda _: edge)
    text = SMALL.replace("https://ops.example", "http://127.0.0.1:9")
    return run.EventsRun(file.read(written(tmp_path, text)), tmp_path, Teller(out=io.StringIO()), 0)


def test_the_state_is_written_while_the_edge_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a crash then sends nothing twice."""
    edge = Hangs()
    bridge = bridge_of(tmp_path, edge, monkeypatch)
    bridge._spool.take(event(1), last="7")
    state, looks = tmp_path / "events.json", [0]

    def end() -> bool:
        looks[0] += 1
        return looks[0] > 20 or (state.exists() and '"last": "7"' in state.read_text())

    assert bridge.run(end) == 0  # type: ignore[arg-type]
    assert state.exists()
    assert not edge.has_answered
    edge.over.set()


def test_an_edge_that_nobody_understands_ends_the_bridge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than a bridge that runs and watches nothing."""
    bridge = bridge_of(tmp_path, Broken(), monkeypatch)
    with pytest.raises(KeyError):
        bridge.run(lambda: False)  # type: ignore[arg-type]
