"""What applications may do: grants at an edge, and how a program learns of a refusal."""

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mez
from mez._subscribe import connect
from tests.support import Site, deliver


def _image() -> np.ndarray:
    return np.zeros((48, 64, 3), np.uint8)


def test_a_program_does_what_it_was_granted_and_is_told_what_is_missing() -> None:
    """The sentence names the grant and the command."""
    grants = {"app/**": {"watch": ["dock/*"], "read": "dock/*", "observe": "dock/*"}}
    with mez.edge(rights=grants) as edge, mez.publisher("dock/cam1", edge=edge) as cam:
        remote: dict[str, Any] = {"edge": edge.grpc_address, "keys": edge.keys}
        with mez.subscribe("dock/*", **remote) as frames:
            for _ in range(100):
                cam.send(_image())
                try:
                    assert frames.next(timeout=0.2).camera == "dock/cam1"
                    break
                except mez.WaitTimeoutError:
                    continue
            else:
                pytest.fail("no frame came")
        assert [camera.camera for camera in mez.cameras(**remote)] == ["dock/cam1"]
        assert list(mez.read("dock/cam1", held_only=True, **remote))

        with pytest.raises(
            mez.PermissionDenied, match=r"may not watch yard/\*.*mez keys grant app/"
        ) as refused:
            mez.subscribe("yard/*", **remote)
        assert refused.value.reason == "PERMISSION_DENIED"
        assert isinstance(refused.value, PermissionError)
        with pytest.raises(mez.PermissionDenied, match=r"fetch originals from dock/cam1.*held_only"):
            list(mez.read("dock/cam1", **remote))
        with pytest.raises(mez.PermissionDenied, match="see the state of yard/cam1"):
            mez.cameras("yard/cam1", **remote)
        # On the Unix socket this process is the user that the edge runs as.
        with edge.subscribe("yard/*"):
            pass


def test_a_program_that_writes_files_says_so_and_needs_a_grant_of_export() -> None:
    """Live or past, and the sentence names the grant."""
    grants = {"app/**": {"watch": "dock/*", "read": "dock/*", "export": "dock/cam1"}}
    with (
        mez.edge(rights=grants) as edge,
        mez.publisher("dock/cam1", edge=edge) as cam,
        mez.publisher("dock/cam2", edge=edge) as other,
    ):
        remote: dict[str, Any] = {"edge": edge.grpc_address, "keys": edge.keys}
        with mez.subscribe("dock/cam1", for_export=True, **remote) as frames:
            assert deliver(cam, frames).camera == "dock/cam1"
        with mez.subscribe("dock/cam2", **remote) as frames:
            assert deliver(other, frames).camera == "dock/cam2"
        assert list(mez.read("dock/cam1", held_only=True, for_export=True, **remote))
        may_not = r"app/\S+ may not .*dock/cam2.*`mez keys grant app/\S+ export dock/cam2` on the edge's host"
        with pytest.raises(mez.PermissionDenied, match=may_not) as refused:
            mez.subscribe("dock/cam2", for_export=True, **remote)
        assert refused.value.reason == "PERMISSION_DENIED"
        with pytest.raises(mez.PermissionDenied, match=may_not):
            list(mez.read("dock/cam2", held_only=True, for_export=True, **remote))
        # Of a pattern, only what may be written comes.
        with mez.subscribe("dock/*", for_export=True, **remote) as frames:
            other.send(_image())
            assert deliver(cam, frames).camera == "dock/cam1"
            assert all(frame == "dock/cam1" for frame in frames.last)


def test_rights_that_make_no_sense_are_named() -> None:
    """Before anything is started."""
    for rights, says in [
        ({"counter": {"watch": "dock/*"}}, "app/NAME"),
        ({"app/counter": {"wach": "dock/*"}}, "the verbs are watch"),
        ({"app/counter": {"watch": "dock/cam*"}}, "one whole segment"),
    ]:
        with pytest.raises(mez.ArgumentError, match=says) as refused:
            mez.edge(rights=rights)
        assert refused.value.field == "rights"
    with pytest.raises(mez.ArgumentTypeError, match="for each application"):
        mez.edge(rights={"app/counter": "watch"})  # type: ignore[dict-item]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A strict site that grants nothing yet."""
    return Site(tmp_path)


_TAKEN = r"may not watch dock/\*.*`mez keys grant app/\S+ watch 'dock/\*'`"


def test_a_right_that_is_taken_away_ends_a_loop_with_the_sentence(site: Site) -> None:
    """Also one that runs."""
    site.run("grant", "app/**", "watch", "dock/*")
    with (
        site.edge() as edge,
        mez.publisher("dock/cam1", edge=edge) as cam,
        mez.subscribe("dock/*", timeout=60, **site.remote(edge)) as frames,
    ):
        deliver(cam, frames)
        site.run("ungrant", "app/**", "watch")
        with pytest.raises(mez.PermissionDenied, match=_TAKEN) as refused:
            for _ in frames:
                cam.send(_image())
        assert refused.value.reason == "PERMISSION_DENIED"


def test_a_program_is_told_which_of_its_cameras_it_has_lost(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """With the grant that is missing. The edge is not lost, and nobody has to subscribe again."""
    site.run("grant", "app/**", "watch", "dock/*")
    events: list[mez.Event] = []
    with (
        site.edge() as edge,
        mez.publisher("dock/cam1", edge=edge) as kept,
        mez.publisher("dock/cam2", edge=edge) as lost,
        mez.subscribe("dock/*", on_event=events.append, **site.remote(edge)) as frames,
    ):
        deliver(kept, frames)
        deliver(lost, frames)
        site.run("grant", "app/**", "watch", "dock/cam1")
        site.run("ungrant", "app/**", "watch", "dock/*")
        gone: list[mez.Event] = []
        until = time.monotonic() + 60
        while not gone and time.monotonic() < until:
            kept.send(_image())
            with contextlib.suppress(mez.WaitTimeoutError):
                frames.next(timeout=0.1)
            time.sleep(0.02)
            gone = [event for event in events if event.kind == "camera_down"]
        assert [event.camera for event in gone] == ["dock/cam2"]
        assert "may no longer watch dock/*: its grants of watch are now for dock/cam1" in str(gone[0].reason)
        assert deliver(kept, frames).camera == "dock/cam1"

        # Another change later says nothing about it again.
        site.run("grant", "app/**", "watch", "dock/cam3")
        until = time.monotonic() + 60
        while sum(event.kind == "reconnected" for event in events) < 2 and time.monotonic() < until:
            kept.send(_image())
            with contextlib.suppress(mez.WaitTimeoutError):
                frames.next(timeout=0.1)
        assert deliver(kept, frames).camera == "dock/cam1"
        assert [event.camera for event in events if event.kind == "camera_down"] == ["dock/cam2"]
    assert "lost the connection" not in caplog.text


async def test_a_right_that_is_taken_away_ends_an_async_loop_with_the_sentence(site: Site) -> None:
    """The same for `async for`."""
    site.run("grant", "app/**", "watch", "dock/*")
    with (
        site.edge() as edge,
        mez.publisher("dock/cam1", edge=edge) as cam,
        mez.subscribe("dock/*", timeout=60, **site.remote(edge)) as frames,
    ):
        deliver(cam, frames)
        site.run("ungrant", "app/**", "watch")
        with pytest.raises(mez.PermissionDenied, match=_TAKEN):
            async for _ in frames:
                cam.send(_image())


def test_a_right_that_comes_back_is_worth_something(site: Site) -> None:
    """A grant while the edge runs lets a program in that was refused."""
    with site.edge() as edge, mez.publisher("dock/cam1", edge=edge) as cam:
        with pytest.raises(mez.PermissionDenied):
            mez.subscribe("dock/*", **site.remote(edge))
        site.run("grant", "app/**", "watch", "dock/*")
        for _ in range(600):
            try:
                frames = mez.subscribe("dock/*", **site.remote(edge))
                break
            except mez.PermissionDenied:
                time.sleep(0.1)
        with frames:
            assert deliver(cam, frames).camera == "dock/cam1"


def test_results_and_notes_need_their_rights_too() -> None:
    """A reply does not wait for the edge: what became of it is said by the next one."""
    grants = {"app/**": {"watch": "dock/*"}}
    with mez.edge(rights=grants) as edge, mez.publisher("dock/cam1", edge=edge) as cam:
        remote: dict[str, Any] = {"edge": edge.grpc_address, "keys": edge.keys}
        with mez.subscribe("dock/*", **remote) as frames:
            frame = deliver(cam, frames)
            frame.reply(b"two people")
            for _ in range(600):
                if frames.reply_counts.failed:
                    break
                time.sleep(0.1)
            with pytest.raises(
                mez.PermissionDenied, match=r"may not reply to dock/cam1.*`mez keys grant app/"
            ):
                frame.reply([[0, 0, 10, 10]])
            # Each refusal is told once.
            frame.reply(b"two people")
        with pytest.raises(mez.PermissionDenied, match="may not read past frames of dock/cam1"):
            mez.notes("dock/cam1", **remote)
        with pytest.raises(mez.PermissionDenied, match="may not read past frames of yard/cam9"):
            list(mez.read("yard/cam9", held_only=True, **remote))


def test_a_host_given_as_a_pattern_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mez.cameras("edge.local")` asks this host's edge for a camera of that name."""
    with mez.edge() as edge:
        # Another edge may run on this host.
        monkeypatch.setattr("mez._edge.connect", lambda _, **others: connect(edge, **others))
        with pytest.warns(UserWarning, match=r"mez\.cameras\(edge='edge\.local'\)"):
            assert mez.cameras("edge.local") == []
