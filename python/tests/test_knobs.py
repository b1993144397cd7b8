"""Knobs of data records: what is declared, what comes at a rung, and what a function that fails costs."""

import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mez
from mez import _data

CHECKOUT = Path(__file__).parents[2]
ROWS = [["/page", number] for number in range(100, 0, -1)]


def head(rows: list[Any], knobs: dict[str, int | float]) -> list[Any]:
    """The first rows."""
    return rows[: int(knobs["top"])]


def profile(**rungs: tuple[int, float]) -> dict[str, object]:
    """A profile of these rungs, each with bytes and accuracy. `_` stands for `/`, `is` for `=`."""
    return {
        "format": "mez-profile",
        "version": 1,
        "app": "top",
        "width": 0,
        "height": 0,
        "rungs": [
            {
                "rung": name.replace("_", "/").replace("IS", "="),
                "bytes": {"mean": mean, "p05": mean * 0.9, "p50": mean, "p95": mean * 1.1},
                "accuracy_normalised": {"value": accuracy},
            }
            for name, (mean, accuracy) in rungs.items()
        ],
    }


def until(
    log: mez.Publisher, records: mez.Subscription, payload: object, found: Callable[[mez.Frame], bool]
) -> tuple[mez.Frame, list[mez.Frame]]:
    """Publish until a record comes that is looked for. It, and all that came."""
    log.wait_connected(timeout=30)
    came = []
    for _ in range(1500):
        # Knobs that have failed rest for seconds: this goes on for half a minute.
        time.sleep(0.02)
        log.send_data(payload)
        try:
            record = records.next(timeout=0.05)
        except mez.WaitTimeoutError:
            continue
        came.append(record)
        if found(record):
            return record, came
    raise AssertionError(f"it never came; {records.contracts}")


def test_a_contract_gets_records_by_their_knobs(edge: mez.Edge) -> None:
    """The rung says what was done, and the profile what it keeps."""
    knobs = mez.Knobs([mez.knob("top", [10, 30])], degrade=head)
    asked = profile(data_topIS10=(150, 0.8), data_topIS30=(400, 0.95))
    with (
        mez.publisher("web/log1", edge=edge, knobs=knobs) as log,
        edge.subscribe("web/*", latency_ms=1000, accuracy=0.9, profile=asked) as records,
    ):
        record, _ = until(log, records, ROWS, lambda record: record.rung == "data/top=30")
        assert record.data == ROWS[:30]
        assert (record.content_type, record.encoding) == ("application/json", "data")
        assert (record.expected_accuracy, record.infeasible) == (0.95, False)
        until(log, records, ROWS, lambda record: record.contract.state == "ok")


@pytest.mark.parametrize("mood", ["raises", "hangs", "grows", "empty", "none"])
def test_a_function_that_fails_costs_its_records_the_degraded_form(edge: mez.Edge, mood: str) -> None:
    """They come as they were published, or are counted; and degraded again when the function works again."""
    fails = threading.Event()
    ends = threading.Event()

    def moody(rows: list[Any], knobs: dict[str, int | float]) -> object:
        if not fails.is_set():
            return head(rows, knobs)
        if mood == "raises":
            raise RuntimeError("planned")
        if mood == "hangs":
            ends.wait(20)
        return {"grows": rows + rows, "empty": b"", "none": None}.get(mood, rows)

    knobs = mez.Knobs([mez.knob("top", [10])], degrade=moody)
    asked = profile(data_topIS10=(150, 0.95))
    with (
        mez.publisher("web/log1", edge=edge, knobs=knobs) as log,
        edge.subscribe("web/*", latency_ms=1000, accuracy=0.9, profile=asked) as records,
    ):
        _, came = until(log, records, ROWS, lambda record: record.rung == "data/top=10")
        fails.set()
        record, more = until(log, records, ROWS, lambda record: record.rung == "original")
        assert record.data == ROWS
        came += more
        fails.clear()
        ends.set()
        _, more = until(log, records, ROWS, lambda record: record.rung == "data/top=10")
        came += more
        for one, other in itertools.pairwise(came):
            assert other.sequence - one.sequence - 1 == sum(other.skipped.values())
        assert {record.rung for record in came} == {"original", "data/top=10"}


def test_the_past_comes_at_a_rung_that_is_asked_for(edge: mez.Edge) -> None:
    """A record that cannot be had at the rung is counted."""
    knobs = mez.Knobs([mez.knob("every", [4], operator="downsample")])
    array = np.arange(40, dtype=np.float32).reshape(20, 2)
    with mez.publisher("web/log1", edge=edge, knobs=knobs) as log:
        log.wait_connected(timeout=30)
        for payload in (ROWS, "no rows", array):
            log.send_data(payload)
        with mez.read("web/log1", edge=edge, since="-10m", quality="data/every=4") as past:
            first, last = list(past)
        assert (first.rung, last.rung) == ("data/every=4", "data/every=4")
        assert first.data == ROWS[::4]
        np.testing.assert_array_equal(last.data, array[::4])
        assert dict(last.skipped) == {"not_made": 1}


@pytest.mark.parametrize(
    ("payload", "knob", "expected"),
    [
        (ROWS, mez.knob("k", [3], operator="head"), ROWS[:3]),
        (ROWS, mez.knob("k", [3], operator="downsample"), ROWS[::3]),
        (ROWS, mez.knob("k", [99], operator="threshold", key=1), ROWS[:2]),
        ([{"n": 1, "x": "é"}, {"n": 3}], mez.knob("k", [2], operator="threshold", key="n"), [{"n": 3}]),
        ([3, -1, 2.5], mez.knob("k", [2.5], operator="threshold"), [3, 2.5]),
        ([1.23456, "1.23456"], mez.knob("k", [2], operator="precision"), [1.23, "1.23456"]),
        (np.arange(6.0), mez.knob("k", [2], operator="head"), np.arange(2.0)),
        (np.arange(6.0), mez.knob("k", [4], operator="downsample"), np.array([0.0, 4.0])),
        (np.eye(3), mez.knob("k", [1], operator="threshold", key=2), np.array([[0.0, 0.0, 1.0]])),
        (np.arange(4, dtype=">i2"), mez.knob("k", [2], operator="threshold"), np.array([2, 3], dtype=">i2")),
        (np.arange(6.0) / 3, mez.knob("k", [16], operator="precision"), (np.arange(6.0) / 3).astype("f2")),
        (np.arange(6.0) / 3, mez.knob("k", [32], operator="precision"), (np.arange(6.0) / 3).astype("f4")),
    ],
)
def test_operators_do_what_they_say(payload: object, knob: mez.Knob, expected: object) -> None:
    """Offline as on a link; NumPy reads what they make of its arrays."""
    stream = mez.Knobs([knob])
    (rung,) = [rung for rung in stream.rungs() if rung != "original"]
    _, kind = _data.pack(payload, None)
    made = _data.unpack(memoryview(stream.apply(rung, payload)), kind)
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(made, expected)
        assert made.dtype == expected.dtype
    else:
        assert made == expected
    assert stream.apply("original", payload) == _data.pack(payload, None)[0]


def test_rungs_name_all_knobs_in_their_order() -> None:
    """With what leaves records out behind them."""
    stream = mez.Knobs(
        [
            mez.knob("top", [10, 30.0]),
            mez.knob("skip", [0, 2]),
            mez.knob("least", [0.1], operator="threshold", key=1),
        ],
        degrade=head,
    )
    assert stream.rungs() == [
        "original",
        "original/skip2",
        "data/top=10/least=0.1",
        "data/top=10/least=0.1/skip2",
        "data/top=30/least=0.1",
        "data/top=30/least=0.1/skip2",
    ]
    assert stream.values("data/top=30/least=0.1/skip2") == {"top": 30, "least": 0.1, "skip": 2}
    assert isinstance(stream.values("data/top=30/least=0.1")["top"], int)
    assert stream.values("original") == {"skip": 0}
    for rung in ("data/least=0.1/top=10", "data/top=10", "data/top=20/least=0.1", "jpeg/q80/420", "data"):
        with pytest.raises(mez.ArgumentError) as refused:
            stream.values(rung)
        assert refused.value.field == "rung"
    assert json.loads(stream.apply("data/top=30/least=0.1", ROWS)) == ROWS[:30]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: mez.knob("Top", [1]), "not a valid knob name"),
        (lambda: mez.knob("top", []), "has 0 values"),
        (lambda: mez.knob("top", [1, 1.0]), "twice"),
        (lambda: mez.knob("top", range(33)), "has 33 values"),
        (lambda: mez.knob("top", [float("nan")]), "six decimals"),
        (lambda: mez.knob("top", [float("inf")]), "six decimals"),
        (lambda: mez.knob("top", [1e12]), "below 1e9"),
        (lambda: mez.knob("top", [1e-7]), "six decimals"),
        (lambda: mez.knob("top", [True]), "give a number"),
        (lambda: mez.knob("top", "123"), "list of numbers"),  # type: ignore[arg-type]
        (lambda: mez.knob("top", [1], operator="tail"), "write one of head, downsample"),
        (lambda: mez.knob("top", [0.5], operator="head"), "whole numbers"),
        (lambda: mez.knob("top", [0], operator="downsample"), "from 1"),
        (lambda: mez.knob("top", [17], operator="precision"), "decimals"),
        (lambda: mez.knob("top", [1], operator="head", key=0), "only threshold"),
        (lambda: mez.knob("top", [1], operator="threshold", key=-1), "key"),
        (lambda: mez.knob("skip", [256]), "0 to 255"),
        (lambda: mez.knob("skip", [1], operator="head"), "skip"),
        (lambda: mez.Knobs([]), "empty"),
        (lambda: mez.Knobs(["top"]), "mez.knob"),  # type: ignore[list-item]
        (lambda: mez.Knobs([mez.knob("top", [1])]), "nothing applies the knob top"),
        (
            lambda: mez.Knobs([mez.knob("top", [1], operator="head")], degrade=head),
            "leave out the function or an operator",
        ),
        (lambda: mez.Knobs([mez.knob("top", [1])], degrade=3), "give a function"),  # type: ignore[arg-type]
        (lambda: mez.Knobs([mez.knob("a", [1]), mez.knob("a", [2])], degrade=head), "declared twice"),
        (lambda: mez.Knobs([mez.knob("skip", [1]), mez.knob("skip", [2])]), "declared twice"),
        (
            lambda: mez.Knobs([mez.knob(name, range(32)) for name in "abc"], degrade=head),
            "32768 combinations",
        ),
        (lambda: mez.Knobs([mez.knob(name, [1]) for name in "abcdefghi"], degrade=head), "9 knobs"),
        (
            lambda: mez.Knobs([mez.knob(name * 16, [0.123456]) for name in "abc"], degrade=head),
            "longer than 64 bytes",
        ),
    ],
)
def test_knobs_without_sense_are_refused(declare: Callable[[], object], message: str) -> None:
    """With a sentence that says what to give instead."""
    with pytest.raises((mez.ArgumentError, mez.ArgumentTypeError), match=re.escape(message)) as refused:
        declare()
    assert refused.value.field


def test_offline_a_failure_is_an_error() -> None:
    """It says which function or knob, and why."""

    def fails(rows: object, knobs: object) -> object:
        raise KeyError("planned")

    def grows(rows: list[Any], knobs: object) -> object:
        return rows * 2

    for function, message in ((fails, "fails failed: KeyError"), (grows, "must not make it larger")):
        with pytest.raises(mez.DataError, match=message):
            mez.Knobs([mez.knob("k", [1])], degrade=function).apply("data/k=1", ROWS)
    with pytest.raises(
        mez.DataError, match=r"the knob k \(head\) cannot be applied: its content type is text/plain"
    ):
        mez.Knobs([mez.knob("k", [1], operator="head")]).apply("data/k=1", "text")


def test_a_separate_broker_takes_no_knobs(tmp_path: Path) -> None:
    """Their function would not be there."""
    knobs = mez.Knobs([mez.knob("k", [1], operator="head")])
    with pytest.raises(mez.ArgumentError, match="in this program") as refused:
        mez.publisher("web/log1", broker=f"unix://{tmp_path}/camera.sock", knobs=knobs)
    assert refused.value.field == "knobs"
    with pytest.raises(mez.ArgumentTypeError, match=r"mez\.Knobs"):
        mez.publisher("web/log1", edge="localhost", knobs=[])  # type: ignore[arg-type]


def test_several_publishers_share_knobs(edge: mez.Edge) -> None:
    """One that is closed takes the function from no other, and knobs can be used again."""
    knobs = mez.Knobs([mez.knob("top", [10])], degrade=head)
    for _ in range(2):
        with mez.publisher("web/log1", edge=edge, knobs=knobs) as log:
            with mez.publisher("web/log2", edge=edge, knobs=knobs):
                pass
            log.wait_connected(timeout=30)
            log.send_data(ROWS)
            with mez.read("web/log1", edge=edge, since="-10m", quality="data/top=10") as past:
                assert list(past)[-1].data == ROWS[:10]


def test_a_program_ends_while_its_function_hangs(tmp_path: Path) -> None:
    """In good order: a thread that spins in Python, and one that waits, keep no program from ending."""
    program = tmp_path / "hangs.py"
    program.write_text("""
import mez, sys, threading, time
begun = threading.Event()
def hang(rows, knobs):
    begun.set()
    while True:
        if knobs["k"] == 1: time.sleep(60)
knobs = mez.Knobs([mez.knob("k", [1, 2])], degrade=hang)
with mez.edge() as edge, mez.publisher("web/log1", edge=edge, knobs=knobs) as log:
    log.wait_connected(timeout=30)
    log.send_data([1, 2, 3])
    with mez.read("web/log1", edge=edge, since="-10m", quality=sys.argv[1]) as past:
        assert list(past) == []
    assert begun.is_set()
print("ended", flush=True)
""")
    for rung in ("data/k=1", "data/k=2"):
        words = [sys.executable, str(program), rung]
        finished = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (finished.returncode, finished.stdout) == (0, "ended\n"), finished.stderr


def test_the_page_of_knobs_has_a_program_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands there."""
    page = (CHECKOUT / "docs" / "knobs-data.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(program, "docs/knobs-data.md", "exec"), {})
    assert capsys.readouterr().out == "data/top=30/least=5 30\n"
