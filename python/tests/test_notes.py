"""Replies, changes of contracts and of sources are kept beside the frames, and exports take them along."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mez
from tests.support import deliver, enrolled, picture, profile_of
from tests.test_boxes import detect, overlap, publishing, scene
from tests.test_store import store_key

SIZE = (640, 480)
RUNG = "jpeg/w320/q70/420"
OVERLAP_MIN = 0.99


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """The command `mez`, whatever comes of it."""
    mez_command = str(Path(sys.executable).parent / "mez")
    return subprocess.run([mez_command, *words], capture_output=True, text=True)


def ran(*words: str) -> str:
    """What the command prints, which has to succeed."""
    finished = command(*words)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def until(look: Callable[[], list[mez.Note]], count: int) -> list[mez.Note]:
    """What is noted, once it has so many replies: notes are on disk a moment after they were made."""
    for _ in range(600):
        noted = look()
        if len(replies(noted)) >= count:
            return noted
        time.sleep(0.05)
    raise AssertionError(f"not enough was noted: {noted}")


def flush(frames: mez.Subscription) -> None:
    """Wait until the edge has all replies so far."""
    for _ in range(600):
        counts = frames.reply_counts
        if counts.sent == counts.queued:
            return
        time.sleep(0.01)
    raise AssertionError(frames.reply_counts)


def replies(noted: list[mez.Note]) -> list[mez.Reply]:
    """The replies among notes."""
    return [note.reply for note in noted if note.reply]


def ask(edge: str | mez.Edge, keys: Path | None = None) -> mez.Subscription:
    """A contract that gets frames at half their size."""
    terms: dict[str, Any] = {
        "accuracy": 0.9,
        "latency_ms": 5000,
        "profile": profile_of(*SIZE, 0.95, rung=RUNG),
    }
    return mez.subscribe("cam", edge=edge, keys=keys, application="people", timeout=30, **terms)


def answer(frames: mez.Subscription) -> list[mez.Frame]:
    """Answer two frames that were made smaller: one with a box, one with bytes."""
    boxed = next(frame for frame in frames if frame.rung == RUNG)
    assert (boxed.image.shape[1], boxed.published_size) == (320, SIZE)
    boxed.reply(mez.Detections([detect(boxed.image)], scores=[0.9], class_names=["thing"]))
    opaque = next(frame for frame in frames if frame.rung == RUNG)
    opaque.reply(b'{"gate": 3}')
    flush(frames)
    return [boxed, opaque]


def test_replies_and_contracts_are_read_with_the_frames(tmp_path: Path) -> None:
    """In the pixels of the frame as it was published, and also from another host."""
    image, there = scene(*SIZE)
    store = {"store": tmp_path / "store", "store_key": store_key(tmp_path), "state": tmp_path / "edge"}
    with mez.edge(**store) as edge:  # type: ignore[arg-type]
        keys = enrolled(edge, "app/people", tmp_path / "keys").parent
        with mez.publisher("cam", edge=edge) as camera, publishing(camera, image):
            with ask(edge) as frames:
                boxed, opaque = answer(frames)
            grpc = edge.grpc_address
            assert grpc
            noted = until(lambda: list(mez.notes("cam", edge=grpc, keys=keys)), 2)
        past = {frame.id: frame for frame in mez.read("cam", edge=edge)}
    one, two = replies(noted)
    assert (one.frame, two.frame) == (boxed.id, opaque.id)
    assert one.application == "people"
    assert one.detections is not None
    assert one.detections.size == SIZE
    assert one.detections.class_names == ["thing"]
    assert overlap(there, one.detections.xyxy[0].tolist()) >= OVERLAP_MIN
    assert two.payload == b'{"gate": 3}'
    assert two.detections is None
    assert past[one.frame].width == 320
    captured = [note.captured_ns for note in noted if note.reply]
    assert captured == [boxed.captured_ns, opaque.captured_ns]
    assert [note.missing for note in noted] == [0] * len(noted)
    states = [(note.application, note.contract.state) for note in noted if note.contract]
    assert states, "a contract with bounds says how it stands"
    assert {name for name, _ in states} == {"people"}


def test_notes_of_a_span_come_page_by_page(tmp_path: Path) -> None:
    """More than fit into one answer, once and in order; and those of a span."""
    with (
        mez.edge(store=tmp_path / "store", store_key=store_key(tmp_path)) as edge,
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam") as frames,
    ):
        frame = deliver(camera, frames, picture(1, 320, 240))
        for number in range(30):
            frame.reply(bytes([number]) * 60_000)
            flush(frames)
        noted = until(lambda: list(mez.notes("cam", edge=edge)), 30)
        assert [note.reply.payload[0] for note in noted if note.reply] == list(range(30))
        some = list(mez.notes("cam", edge=edge, since=noted[7].noted_ns, until=noted[11].noted_ns))
        assert some == noted[7:12]
        assert list(mez.notes("cam", edge=edge, until="-1h")) == []


def test_masks_and_key_points_are_noted(tmp_path: Path) -> None:
    """A reply to a frame at half the size: the mask as it was, points in the pixels of the camera's picture.

    Beside a video they are as the cookbook says, whose function reads the mask.
    """
    mask = np.zeros((12, 16), bool)
    mask[3:9, 4:15] = mask[0, 0] = True
    points = np.array([[[30.0, 20.0, 0.8], [50.5, 80.25, 0.4]]], np.float32)
    with (
        mez.edge(store=tmp_path / "store", store_key=store_key(tmp_path)) as edge,
        mez.publisher("cam", edge=edge) as camera,
        publishing(camera, picture(3, *SIZE)),
        ask(edge) as frames,
    ):
        frame = next(frame for frame in frames if frame.rung == RUNG)
        frame.reply(mez.Detections([[10, 20, 100, 120]], masks=[mask], key_points=points))
        flush(frames)
        drawn = camera.next_reply(timeout=30).detections
        (noted,) = replies(until(lambda: list(mez.notes("cam", edge=edge)), 1))
    for found in (drawn, noted.detections):
        assert found is not None
        assert found.xyxy.tolist() == [[20, 40, 200, 240]]
        assert found.masks is not None
        assert np.array_equal(np.asarray(found.masks[0]), np.kron(mask, np.ones((40, 40), bool)))
        assert found.key_points is not None
        assert np.allclose(found.key_points, points * [2, 2, 1])

    video = tmp_path / "cam.mp4"
    where = ("--store", str(tmp_path / "store"), "--store-key", str(tmp_path / "store.key"))
    ran("store", "export", "cam", str(video), *where)
    lines = [json.loads(line) for line in Path(f"{video}.jsonl").read_text().splitlines()]
    (written,) = [line["detections"][0] for line in lines if line["kind"] == "reply"]
    cookbook = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text()
    (program,) = re.findall(r"```python\n(import numpy as np\n\ndef pixels_of.*?)```", cookbook, re.DOTALL)
    read: dict[str, Any] = {}
    exec(program, read)
    assert np.array_equal(read["pixels_of"](written["mask"]), mask)
    assert np.allclose(written["key_points"], points[0] * [2, 2, 1])


def test_the_past_says_why_there_were_no_frames(tmp_path: Path) -> None:
    """Frames, an hour of nothing, frames: between them is a note of the source, and however long that was."""
    with (
        mez.edge(store=tmp_path / "store", store_key=store_key(tmp_path)) as edge,
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam") as frames,
    ):
        before = deliver(camera, frames)
        camera.lost("the cable is out")
        lost = sources(edge, 1)[-1]
        after = deliver(camera, frames)
        live = sources(edge, 2)[-1]
        past = [frame.id for frame in mez.read("cam", edge=edge)]
    assert past.index(after.id) > past.index(before.id)
    assert before.captured_ns < lost.noted_ns < after.captured_ns, "between the two frames"
    assert (lost.application, lost.reply, lost.contract) == ("", None, None)
    assert lost.source is not None
    assert (lost.source.state, lost.source.reason) == ("lost", "the cable is out")
    assert lost.source.lasts_s is not None
    assert lost.source.lasts_s >= 0
    assert str(lost.source) == "the camera's source is lost: the cable is out"
    assert live.source is not None
    assert (live.source.state, live.source.reason) == ("live", "")


def test_a_camera_that_comes_again_is_noted_as_live(tmp_path: Path) -> None:
    """It says nothing of a source that gives frames; the frames do."""
    folders = {"store": tmp_path / "store", "store_key": store_key(tmp_path), "state": tmp_path / "edge"}
    with mez.edge(**folders) as edge:  # type: ignore[arg-type]
        with edge.subscribe("cam") as frames:
            with mez.publisher("cam", edge=edge) as camera:
                deliver(camera, frames)
            sources(edge, 1)
            with mez.publisher("cam", edge=edge) as camera:
                deliver(camera, frames)
                sources(edge, 2)
        told = [note.source.state for note in sources(edge, 3) if note.source]
    assert told == ["ended", "live", "ended"]


def sources(edge: mez.Edge, count: int) -> list[mez.Note]:
    """What is noted of the source, once there is so much: a note is on disk a moment after it was made."""
    for _ in range(600):
        noted = [
            note for note in mez.notes("cam", edge=edge) if note.source and note.source.state != "stalled"
        ]
        if len(noted) >= count:
            return noted
        time.sleep(0.05)
    raise AssertionError(f"not enough was noted: {noted}")


def test_an_edge_without_a_store_or_without_notes_keeps_none(tmp_path: Path) -> None:
    """It says so, and with what it would. A camera that is not known is another error."""
    with mez.edge() as edge, pytest.raises(mez.BrokerError, match="--store"):
        mez.notes("cam", edge=edge)
    store = tmp_path / "store"
    with (
        mez.edge(store=store, store_key=store_key(tmp_path), notes=False) as edge,
        mez.publisher("cam", edge=edge) as camera,
        edge.subscribe("cam") as frames,
    ):
        deliver(camera, frames).reply(b"seen")
        flush(frames)
        with pytest.raises(mez.BrokerError, match="--no-notes") as refused:
            mez.notes("cam", edge=edge)
    assert getattr(refused.value, "reason", None) == "NO_NOTES"
    assert (store / "cam" / "@log").is_dir()
    assert not (store / "cam" / "@notes").exists()
    with mez.edge(store=store, store_key=tmp_path / "store.key") as edge, pytest.raises(mez.NotFoundError):
        mez.notes("dock/nowhere", edge=edge)


@contextmanager
def edge_process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`mez edge` with a store, and where cameras connect to it."""
    words = [
        str(Path(sys.executable).parent / "mez"),
        "--log",
        "error",
        "edge",
        "--keys",
        str(folder / "keys"),
    ]
    words += ["--listen", "127.0.0.1:0", "--grpc", "off", "--enrol", "off", "--state", str(folder / "edge")]
    words += ["--socket", str(folder / "e.sock"), "--store", str(folder / "store")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().split()
            yield process, next(word.removeprefix("link=") for word in ready if word.startswith("link="))
        finally:
            process.kill()


def test_notes_outlive_a_killed_edge_and_exports_take_them_along(tmp_path: Path) -> None:
    """`kill -9` in between, and a second start; a video with what was said; a damaged note."""
    image, there = scene(*SIZE)
    keys, store = tmp_path / "keys", tmp_path / "store"
    ran("keys", "init", "--site", "test", "--keys", str(keys))
    ran("store", "key", "--keys", str(keys))
    socket = f"unix://{tmp_path / 'e.sock'}"
    answered: list[mez.Frame] = []
    for start in range(2):
        with edge_process(tmp_path) as (process, link):
            options: dict[str, Any] = {"edge": link, "keys": keys, "state": tmp_path / "camera"}
            with mez.publisher("cam", **options) as camera, publishing(camera, image):
                with ask(socket) as frames:
                    answered += answer(frames)
                until(lambda: list(mez.notes("cam", edge=socket)), 2 * (start + 1))
            os.kill(process.pid, signal.SIGKILL)
    where = ("--store", str(store), "--keys", str(keys), "--state", str(tmp_path / "edge"))
    assert "notes in" in ran("store", "verify", *where)

    video = tmp_path / "cam.mp4"
    told = json.loads(ran("store", "export", "cam", str(video), *where, "--json"))
    assert (told["replies"], told["notes_missing"]) == (4, 0)
    assert told["contract_changes"] >= 2
    lines = [json.loads(line) for line in Path(f"{video}.jsonl").read_text().splitlines()]
    found = [line for line in lines if line["kind"] == "reply"]
    assert [(line["epoch"], line["sequence"]) for line in found] == [frame.id for frame in answered]
    assert [line["captured_ns"] for line in found] == [frame.captured_ns for frame in answered]
    for boxed, opaque in (found[:2], found[2:]):
        assert (boxed["width"], boxed["height"]) == SIZE
        assert overlap(there, boxed["detections"][0]["xyxy"]) >= OVERLAP_MIN
        assert opaque["result"] == {"gate": 3}
    assert [line["state"] for line in lines if line["kind"] == "contract"]
    probe = ["ffprobe", "-v", "error", "-show_entries", "stream=codec_name", "-of", "csv=p=0", str(video)]
    assert "mov_text" in subprocess.run(probe, check=True, capture_output=True, text=True).stdout
    srt = ["ffmpeg", "-v", "error", "-i", str(video), "-f", "srt", "-"]
    assert "people: 1 thing" in subprocess.run(srt, check=True, capture_output=True, text=True).stdout

    first = sorted((store / "cam" / "@notes").glob("*.segment"))[0]
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    damaged = command("store", "verify", *where)
    assert damaged.returncode == 1
    assert "1 note is lost" in damaged.stdout, damaged.stdout
    assert "DAMAGED" in damaged.stdout
    ran("store", "repair", *where, "--to", str(tmp_path / "copy"))
    copied = ("--store", str(tmp_path / "copy"), "--keys", str(keys))
    told = json.loads(ran("store", "export", "cam", str(tmp_path / "copy.mcap"), *copied, "--json"))
    assert told["replies"] + told["contract_changes"] + told["source_changes"] == len(lines) - 1
    assert told["notes_missing"] == 1
