"""Logs on disk, of brokers within a Python process."""

import subprocess
import sys
from pathlib import Path

import pytest

import mez
from tests.support import deliver, number_of, picture


def store_key(folder: Path) -> Path:
    """A new key, made by the command."""
    file = folder / "store.key"
    mez_command = str(Path(sys.executable).parent / "mez")
    subprocess.run([mez_command, "store", "key", "--file", str(file)], check=True, capture_output=True)
    return file


def test_frames_outlive_the_camera_and_are_read_afterwards(edge: mez.Edge, tmp_path: Path) -> None:
    """Published while nobody was subscribed, by a process that is gone: the next one has them."""
    folder, key = tmp_path / "log", store_key(tmp_path)
    with mez.publisher("dock/cam1", edge=edge, store=folder, store_key=key) as camera:
        for number in range(10, 20):
            camera.send(picture(number, 320, 240))
    # The publisher is gone, and with it its log in memory.
    with mez.publisher("dock/cam1", edge=edge, store=folder, store_key=key) as camera:
        camera.wait_connected(timeout=30)
        with mez.read("dock/cam1", edge=edge, since="-10m") as past:
            numbers = [number_of(frame.image) for frame in past]
    assert numbers == list(range(10, 20))


def test_an_edge_keeps_what_crossed(tmp_path: Path) -> None:
    """An edge that starts again on the same folder has the frames of before, without any camera."""
    folder, key, state = tmp_path / "log", store_key(tmp_path), tmp_path / "state"
    with (
        mez.edge(store=folder, store_key=key, state=state) as edge,
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam") as frames,
    ):
        delivered = deliver(camera, frames, picture(33, 320, 240))
    with (
        mez.edge(store=folder, store_key=key, state=state) as edge,
        mez.read("cam", edge=edge, since="-10m") as past,
    ):
        identities = [frame.id for frame in past]
    assert delivered.id in identities


def test_the_past_comes_at_the_quality_asked_for(edge: mez.Edge) -> None:
    """Nobody was subscribed. What is fetched smaller says so, and the original is still to be had."""
    with mez.publisher("dock/cam1", edge=edge, history_share=1.0) as camera:
        camera.wait_connected(timeout=30)
        for number in range(10, 16):
            camera.send(picture(number, 320, 240))
        with mez.read("dock/cam1", edge=edge, quality="jpeg/w160/q50/420") as past:
            small = [(number_of(frame.image), frame.rung, frame.image.shape) for frame in past]
        with mez.read("dock/cam1", edge=edge, held_only=True) as past:
            held = list(past)
        with mez.read("dock/cam1", edge=edge, quality="original") as past:
            originals = [(number_of(frame.image), frame.rung, frame.image.shape) for frame in past]
    assert small == [(number, "jpeg/w160/q50/420", (120, 160, 3)) for number in range(10, 16)]
    assert held == [], "the edge holds what crossed live, and nothing did"
    assert originals == [(number, "original", (240, 320, 3)) for number in range(10, 16)]


@pytest.mark.parametrize(
    ("quality", "word"),
    [("h264/w640/q32", "on its own"), ("jpeg/w640", "quality"), ("small", "original, jpeg")],
)
def test_a_quality_that_frames_of_the_past_cannot_have_is_refused(
    edge: mez.Edge, quality: str, word: str
) -> None:
    """With those that there are."""
    with mez.publisher("cam", edge=edge) as camera:
        camera.wait_connected(timeout=30)
        with pytest.raises(mez.ArgumentError, match=word) as refused:
            mez.read("cam", edge=edge, quality=quality)
    assert refused.value.field == "quality"


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_share_of_the_link_that_makes_no_sense_is_refused(edge: mez.Edge, share: float) -> None:
    """By its name, with what it may be."""
    with pytest.raises(mez.ArgumentError, match=r"0\.01 to 1") as refused:
        mez.publisher("cam", edge=edge, history_share=share)
    assert refused.value.field == "history_share"


@pytest.mark.parametrize(
    ("options", "field", "word"),
    [
        ({"store_key": "x"}, "store_key", "store"),
        ({"store": "x", "store_age": 1}, "store_age", "60"),
        ({"store": "x", "store_bytes": 10}, "store_bytes", "from"),
        ({"store": "x", "durability": "never"}, "durability", "group"),
        ({"link": "carrier pigeon"}, "link", "tcp"),
        ({"broker": "unix:///x", "store": "x"}, "broker", "mez camera"),
    ],
)
def test_what_makes_no_sense_is_refused(
    edge: mez.Edge, options: dict[str, object], field: str, word: str
) -> None:
    """By the name of the argument, and with what to write instead."""
    where = {} if "broker" in options else {"edge": edge}
    with pytest.raises(mez.ArgumentError, match=word) as refused:
        mez.publisher("cam", **where, **options)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_without_a_key_nothing_is_written(edge: mez.Edge, tmp_path: Path) -> None:
    """The refusal says which command makes one."""
    with pytest.raises(mez.KeysError, match="mez store key"):
        mez.publisher("cam", edge=edge, store=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_a_link_over_tcp_is_chosen(edge: mez.Edge) -> None:
    """And carries frames."""
    with mez.publisher("cam", edge=edge, link="tcp") as camera, edge.subscribe("cam") as frames:
        assert number_of(deliver(camera, frames, picture(21)).image) == 21
