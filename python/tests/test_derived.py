"""What programs make of frames: streams that they publish at the edge, and frames and records together."""

import asyncio
import json
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import mez
from tests.support import deliver, picture
from tests.test_foreign_client import client, of_kind
from tests.test_sources import until
from tests.test_store import store_key

CHECKOUT = Path(__file__).parents[2]


def _known(edge: mez.Edge, name: str) -> mez.CameraInfo:
    return next(info for info in edge.cameras() if info.camera == name)


def test_a_program_publishes_at_the_edge_what_it_made_of_frames(edge: mez.Edge) -> None:
    """It needs no camera's keys; readers find the frame, and lists what the stream is made of."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/cam1") as frames,
        edge.subscribe("dock/*/faces", deliver="every") as found,
    ):
        deliver(camera, frames)
        with mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as faces:
            camera.send(picture(1))
            frame = frames.next(timeout=30)
            boxes = np.array([[1, 2, 3, 4]], dtype=np.float32)
            identity = faces.send_data(boxes, of=frame)
            record = found.next(timeout=30)
            assert (record.camera, record.id) == ("dock/cam1/faces", identity)
            assert record.of == frame.origin
            np.testing.assert_array_equal(record.data, boxes)
            assert record.age_ms is not None
            # A picture of what was found.
            assert faces.send(picture(2)) == mez.FrameId(identity.epoch, 1) if identity else False
            assert found.next(timeout=30).image.shape == frame.image.shape
            info = _known(edge, "dock/cam1/faces")
            assert (info.derived_from, info.publishers, info.connected) == (("dock/cam1",), 1, True)
            assert _known(edge, "dock/cam1").publishers is None
        until(lambda: not _known(edge, "dock/cam1/faces").connected, "it is still published")
        assert _known(edge, "dock/cam1/faces").publishers == 0
        # The numbers go on.
        with mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as faces:
            assert faces.send_data("again") == mez.FrameId(1, 2)


def test_names_and_options_that_make_no_sense_are_refused(edge: mez.Edge, tmp_path: Path) -> None:
    """With the field and what to do."""
    with mez.publisher("dock/cam1", edge=edge) as camera:
        camera.wait_connected(30)
        with pytest.raises(mez.BrokerError, match="is a camera that this edge knows") as error:
            mez.publisher("dock/cam1", of="yard/cam1", edge=edge)
        assert error.value.reason == "NAME_IS_CAMERA"
        with pytest.raises(mez.ArgumentError, match="cannot be its own source"):
            mez.publisher("tracks", of="tracks", edge=edge)
        no_sources: list[list[str] | tuple[str, ...]] = [[], ()]
        for of in no_sources:
            with pytest.raises(mez.ArgumentError, match="give the source"):
                mez.publisher("tracks", of=of, edge=edge)
        with pytest.raises(mez.ArgumentError, match="kept by the edge"):
            mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge, store=tmp_path)
        with mez.publisher("tracks", of=["dock/cam1", "dock/cam2"], edge=edge) as tracks:
            assert _known(edge, "tracks").derived_from == ("dock/cam1", "dock/cam2")
            with pytest.raises(mez.FrameTooLargeError):
                tracks.send_data(bytes((8 << 20) + 1))
    with pytest.raises(mez.ArgumentError, match="until needs since"):
        mez.join("dock/cam1", "dock/cam1/faces", until="now", edge=edge)
    with pytest.raises(mez.ArgumentError, match="give the stream derived from these frames"):
        mez.join("dock/cam1", "dock/cam1", edge=edge)


def test_frames_and_records_come_together_in_order_of_capture(edge: mez.Edge) -> None:
    """Two workers finish in another order; one frame is left out, and one record comes twice."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/cam1", deliver="every") as frames,
        mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as one,
        mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as other,
        mez.join("dock/cam1", "dock/cam1/faces", within_ms=700, edge=edge) as pairs,
    ):
        deliver(camera, frames)

        def sent(number: int) -> mez.Frame:
            camera.send(picture(number))
            return frames.next(timeout=30)

        seen = [sent(number) for number in range(5)]
        for at, worker in ((1, other), (0, one), (3, one), (4, other), (4, one)):
            worker.send_data({"of": seen[at].sequence}, of=seen[at])
        # Frames before them, of which nothing was made, come first.
        came: list[mez.Pair] = []
        while not came or came[-1].frame.id < seen[-1].id:
            came.append(pairs.next(timeout=30))
        together = came[-5:]
        assert [pair.frame.id for pair in together] == [frame.id for frame in seen]
        for pair, frame in zip(together, seen, strict=True):
            if frame is seen[2]:
                assert (pair.missing, pair.record, pair.data) == ("passed", None, None)
            else:
                assert (pair.missing, pair.data) == (None, {"of": frame.sequence})
        last = sent(9)
        one.send_data("last", of=last)
        pair = pairs.next(timeout=30)
        assert pair.data == "last"
        strays = [stray for each in (*came, pair) for stray in each.strays]
        assert [(stray.reason, stray.record.of) for stray in strays] == [("twice", seen[4].origin)]
        counts = pairs.counts
        assert counts.frames == counts.whole + counts.missing
        assert counts.records == counts.matched + counts.strays == 6
        assert pairs.waiting == (0, 0, 0)
    with pytest.raises(mez.EndedError):
        pairs.next()


def test_a_join_in_an_event_loop_and_one_that_times_out(edge: mez.Edge) -> None:
    """Nothing comes: that is said in time. Then a pair comes."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as faces,
        edge.subscribe("dock/cam1", deliver="every") as frames,
    ):
        deliver(camera, frames)

        async def read() -> mez.Pair:
            with mez.join("dock/cam1", "dock/cam1/faces", timeout=0.3, edge=edge) as pairs:
                with pytest.raises(mez.WaitTimeoutError, match="no pair within"):
                    await anext(pairs)
                camera.send(picture(3))
                frame = await asyncio.to_thread(frames.next, 30)
                await asyncio.to_thread(lambda: faces.send_data([1], of=frame))
                return await anext(pairs)

        pair = asyncio.run(read())
        assert (pair.data, pair.missing) == ([1], None)


def test_a_loop_that_is_too_slow_loses_the_oldest_pairs_and_is_told(edge: mez.Edge) -> None:
    """What waits is bounded, whether or not anybody takes it."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as faces,
        edge.subscribe("dock/cam1", deliver="every") as frames,
        mez.join("dock/cam1", "dock/cam1/faces", waiting_max=4, edge=edge) as pairs,
    ):
        deliver(camera, frames)
        for number in range(12):
            camera.send(picture(number))
            faces.send_data(number, of=frames.next(timeout=30))
        until(lambda: pairs.counts.matched == 12, "not all came together")
        taken = [pairs.next(timeout=30) for _ in range(4)]
        assert [pair.data for pair in taken] == [8, 9, 10, 11]
        assert sum(pair.dropped for pair in taken) == pairs.counts.dropped > 0


def test_one_frame_is_asked_for_what_was_made_of_it(edge: mez.Edge) -> None:
    """Also if the record is there already, and if it never comes."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as faces,
        edge.subscribe("dock/cam1", deliver="every") as frames,
    ):
        deliver(camera, frames)
        camera.send(picture(1))
        frame = frames.next(timeout=30)
        faces.send_data("there", of=frame)
        found = frame.derived("faces", timeout_ms=30_000)
        assert found is not None
        assert (found.data, found.of) == ("there", frame.origin)
        camera.send(picture(2))
        later = frames.next(timeout=30)
        assert later.derived("faces", timeout_ms=50) is None
        threading.Timer(0.1, lambda: faces.send_data("late", of=later)).start()
        again = later.derived("faces", timeout_ms=30_000)
        assert again is not None
        assert again.data == "late"
    with pytest.raises(mez.EndedError):
        frame.derived("faces")


def test_the_past_is_joined_too(tmp_path: Path) -> None:
    """From disk, after a restart of the edge, without a clock."""
    key, store, state = store_key(tmp_path), tmp_path / "logs", tmp_path / "edge-state"
    with mez.edge(store=store, store_key=key, state=state) as edge:
        with (
            mez.publisher("dock/cam1", edge=edge) as camera,
            mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as faces,
            edge.subscribe("dock/cam1", deliver="every") as frames,
        ):
            deliver(camera, frames)
            sent = []
            for number in range(20):
                camera.send(picture(number))
                frame = frames.next(timeout=30)
                sent.append(frame)
                if number % 5 != 4:
                    faces.send_data(number, of=frame)
            time.sleep(0.5)
            with mez.join(
                "dock/cam1", "dock/cam1/faces", since=sent[0].captured_ns, within_ms=0, edge=edge
            ) as pairs:
                joined = list(pairs)
        assert [pair.frame.id for pair in joined] == [frame.id for frame in sent]
        assert [pair.data for pair in joined] == [None if n % 5 == 4 else n for n in range(20)]
    with mez.edge(store=store, store_key=key, state=state) as edge:
        info = _known(edge, "dock/cam1/faces")
        assert (info.derived_from, info.connected) == (("dock/cam1",), False)
        with mez.publisher("dock/cam1/faces", of="dock/cam1", edge=edge) as faces:
            assert faces.send_data("after") == mez.FrameId(2, 0)


def test_a_client_in_another_language_publishes_at_the_edge(edge: mez.Edge) -> None:
    """Generated from the `.proto` alone."""
    with (
        mez.publisher("dock/cam1", edge=edge) as camera,
        edge.subscribe("dock/cam1/sizes", deliver="every") as sizes,
    ):
        camera.wait_connected(30)
        words = ["derive", "--broker", f"unix:{edge.socket}", "dock/cam1", "dock/cam1/sizes", "--frames", "3"]
        with client(*words) as said:
            assert of_kind(said, "started")["stream"] == "dock/cam1/sizes"
            done = threading.Event()

            def send() -> None:
                while not done.wait(0.05):
                    camera.send(picture(7))

            sending = threading.Thread(target=send)
            sending.start()
            try:
                for number in range(3):
                    told = of_kind(said, "accepted")
                    assert (told["number"], told["sequence"]) == (number, number)
                    record = sizes.next(timeout=30)
                    assert record.of is not None
                    assert record.of.camera == "dock/cam1"
                    assert json.loads(bytes(record.payload))["bytes"] > 100
            finally:
                done.set()
                sending.join()
        assert _known(edge, "dock/cam1/sizes").derived_from == ("dock/cam1",)


class _EnoughError(Exception):
    """A program of the page has shown what it does."""


def test_the_programs_of_the_page_run_together(edge: mez.Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand there: one publishes what it makes of frames, the other one reads both."""
    page = (CHECKOUT / "docs" / "derived.md").read_text()
    makes, joins, *_ = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("MEZ_EDGE", f"unix://{edge.socket}")
    done = threading.Event()
    drawn: list[tuple[tuple[int, ...], object]] = []

    def detect(image: np.ndarray) -> list[list[int]]:
        if done.is_set():
            raise _EnoughError
        return [list(image.shape)]

    def draw(image: np.ndarray, data: object) -> None:
        drawn.append((image.shape, data))
        if len(drawn) == 3:
            done.set()
            raise _EnoughError

    def run(program: str) -> None:
        with pytest.raises(_EnoughError):
            exec(compile(program, "docs/derived.md", "exec"), {"mez": mez, "detect": detect, "draw": draw})

    programs = [threading.Thread(target=run, args=[program], daemon=True) for program in (makes, joins)]
    with mez.publisher("dock/cam1", edge=edge) as camera:
        camera.wait_connected(timeout=30)
        for program in programs:
            program.start()
        number = 0
        while any(program.is_alive() for program in programs) and number < 3_000:
            camera.send(picture(number))
            number += 1
            time.sleep(0.01)
    assert not any(program.is_alive() for program in programs), f"{len(drawn)} of {number} frames were drawn"
    assert [data for _, data in drawn] == [[list(shape)] for shape, _ in drawn]
    assert len(drawn) == 3
    assert _known(edge, "dock/cam1/faces").derived_from == ("dock/cam1",)
