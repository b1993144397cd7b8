"""Groups of readers in Python: what a loop says of its records, by itself and by hand."""

import logging
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest

import mez
from tests.support import deliver, groups, picture


def _account(edge: mez.Edge, name: str, value: int) -> dict[str, Any]:
    """The only group, once a part of its account has a value."""
    for _ in range(200):
        (group,) = groups(edge)
        if group["account"][name] == value:
            return group
    raise AssertionError(f"{name} is not {value}: {group}")


def test_whoever_asks_for_the_next_has_done_the_one_before(edge: mez.Edge) -> None:
    """A loop needs no word about that, and every record is given once."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*", group="detect", deliver="every") as frames,
    ):
        assert frames.group == "detect"
        first = deliver(camera, frames)
        assert first.attempt == 1
        ids = [deliver(camera, frames).id for _ in range(10)]
        assert ids == sorted(set(ids))
        group = _account(edge, "open", 1)
        assert group["account"]["given"] == group["account"]["done"] + 1
        assert (group["name"], group["deliver"], len(group["members"])) == ("detect", "every", 1)


def test_members_share_the_records(edge: mez.Edge) -> None:
    """Two workers in threads: each record comes to one of them."""
    with mez.publisher("dock/cam1", edge=edge) as camera:
        members = [edge.subscribe("dock/*", group="detect", deliver="every") for _ in range(2)]
        last = deliver(camera, members[0]).sequence + 40
        got: list[tuple[int, int]] = []

        def work(which: int) -> None:
            for frame in members[which]:
                got.append((which, frame.sequence))
                frame.done()

        workers = [threading.Thread(target=work, args=(which,)) for which in range(2)]
        for worker in workers:
            worker.start()
        for number in range(40):
            camera.send(picture(number))
        _account(edge, "open", 0)
        while not any(sequence == last for _, sequence in got):
            pass
        for member in members:
            member.close()
        for worker in workers:
            worker.join(timeout=30)
        sequences = sorted(sequence for _, sequence in got)
        assert len(sequences) == len(set(sequences))
        assert {which for which, _ in got} == {0, 1}


def test_an_exception_in_a_with_block_is_a_failure(edge: mez.Edge) -> None:
    """The record comes again at once, and after its tries it is a dead letter with the exception's text."""
    with mez.publisher("dock/cam1", edge=edge) as camera:
        camera.wait_connected(timeout=30)
        for attempt in (1, 2):
            with (
                pytest.raises(ZeroDivisionError),
                edge.subscribe("dock/*", group="detect", deliver="every", tries=2) as frames,
            ):
                frame = deliver(camera, frames) if attempt == 1 else frames.next(timeout=30)
                assert frame.attempt == attempt
                _ = 1 / 0
        group = _account(edge, "dead", 1)
        (letter,) = group["dead_letters"]
        assert (letter["sequence"], letter["tries"]) == (frame.sequence, 2)
        assert letter["last"] == "ZeroDivisionError: division by zero"


def test_several_at_once_are_settled_one_by_one(edge: mez.Edge) -> None:
    """From any thread, in any order; a word too much does nothing."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*", group="detect", deliver="every", at_once=3) as frames,
    ):
        held = [deliver(camera, frames) for _ in range(3)]
        camera.send(picture(1))
        with pytest.raises(mez.WaitTimeoutError):
            frames.next(timeout=0.3)
        threading.Thread(target=held[1].done).start()
        more = frames.next(timeout=30)
        assert more.sequence > held[2].sequence
        held[1].done()
        held[1].failed("too late")
        held[0].failed(ValueError("not a picture"))
        again = frames.next(timeout=30)
        assert (again.id, again.attempt) == (held[0].id, 2)
        copied = pickle.loads(pickle.dumps(again))
        with pytest.raises(mez.EndedError):
            copied.done()


def test_what_a_break_leaves_is_given_to_another(edge: mez.Edge) -> None:
    """Unless it was said to be done."""
    with mez.publisher("dock/cam1", edge=edge) as camera:
        with edge.subscribe("dock/*", group="detect", deliver="every") as frames:
            left = deliver(camera, frames)
        with edge.subscribe("dock/*", group="detect", deliver="every") as frames:
            again = frames.next(timeout=30)
            assert (again.id, again.attempt) == (left.id, 2)
            again.done()
        group = _account(edge, "open", 0)
        assert group["account"]["left"] == 1


MEMBER = """
import sys, time
import mez
with mez.subscribe("dock/*", edge=sys.argv[1], group="detect", deliver="every") as frames:
    print("ready", flush=True)
    for frame in frames:
        print(frame.sequence, frame.attempt, flush=True)
        time.sleep(3600)
"""
"""A member that never gets done with its first record."""


def test_the_record_of_a_killed_program_is_given_to_another(edge: mez.Edge) -> None:
    """SIGKILL leaves no word. The edge waits a second for the program; `again_after` is much longer."""
    words = [sys.executable, "-c", MEMBER, f"unix://{edge.socket}"]
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program,
    ):
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            camera.wait_connected(timeout=30)
            camera.send(picture(0))
            sequence, attempt = map(int, program.stdout.readline().split())
            assert attempt == 1
            with edge.subscribe("dock/*", group="detect", deliver="every") as frames:
                # It is not asked again: the other program has the record, until that is killed.
                with pytest.raises(mez.WaitTimeoutError):
                    frames.next(timeout=0.3)
                program.kill()
                again = frames.next(timeout=30)
                assert (again.sequence, again.attempt) == (sequence, 2)
                again.done()
                group = _account(edge, "open", 0)
                assert (group["account"]["left"], group["account"]["silent"]) == (1, 0)
        finally:
            program.kill()


def test_a_member_learns_whether_the_place_survives(edge: mez.Edge, caplog: pytest.LogCaptureFixture) -> None:
    """An edge without a store says so when somebody joins."""
    events: list[mez.Event] = []
    caplog.set_level(logging.INFO, logger="mez")
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/*", group="detect", deliver="every", on_event=events.append) as frames,
    ):
        deliver(camera, frames)
    told = [event.reason for event in events if event.kind == "group"]
    assert told == ["joined; the group's place does not survive a restart of the edge"]
    assert "group detect: joined" in caplog.text


def test_frames_outside_groups_have_nothing_to_settle(edge: mez.Edge) -> None:
    """So one loop serves both."""
    with mez.publisher("dock/cam1", edge=edge) as camera, edge.subscribe("dock/*") as frames:
        frame = deliver(camera, frames)
        assert frame.attempt == 0
        assert frames.group is None
        frame.done()
        frame.failed("nothing")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"ordered": "camera"}, "ordered"),
        ({"at_once": 2}, "at_once"),
        ({"fresh": True}, "fresh"),
        ({"group": "detect", "fresh": True, "deliver": "every"}, "group"),
        ({"tries": 3}, "tries"),
        ({"group": "a/b"}, "group"),
        ({"group": "detect", "tries": 0}, "tries"),
        ({"group": "detect", "at_once": 0}, "at_once"),
        ({"group": "detect", "ordered": "yes"}, "ordered"),
        ({"group": "detect", "again_after": -1.0}, "again_after"),
        ({"group": "detect", "since": "-10m"}, "since"),
    ],
)
def test_what_makes_no_sense_is_refused(edge: mez.Edge, options: dict[str, Any], field: str) -> None:
    """The error names the argument."""
    with pytest.raises(mez.Error) as refused:
        edge.subscribe("dock/*", **options)
    assert getattr(refused.value, "field", None) == field
