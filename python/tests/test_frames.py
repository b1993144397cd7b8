"""Frames from a publisher to an application, through real brokers and sockets."""

import datetime
import itertools
import json
import pickle
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import mez
from mez import _native
from tests.support import deliver, number_of, picture, profile_of


def test_pixels_arrive_as_they_were_sent(edge: mez.Edge) -> None:
    """At quality 95 a smooth picture comes back within two grey levels, and once only."""
    with mez.publisher("dock/cam1", edge=edge) as camera, edge.subscribe("dock/*") as frames:
        deliver(camera, frames)
        sent = picture(40, 320, 240)
        assert camera.send(sent) == (1, camera.published - 1)
        frame = frames.next(timeout=30)
        assert frame.camera == "dock/cam1"
        assert frame.id == mez.FrameId(1, camera.published - 1)
        assert (frame.width, frame.height, frame.encoding, frame.rung) == (320, 240, "jpeg", "original")
        assert frame.image.shape == (240, 320, 3)
        assert frame.image.dtype == np.uint8
        assert np.abs(frame.image.astype(int) - sent).max() <= 2
        assert frame.image is frame.image
        frame.image[0, 0] = 7  # The frame's own, to draw on.
        assert frame.skipped == {}
        # Nothing was asked that could be broken, and nothing was done to it.
        assert frame.contract.state == "ok"
        assert frame.expected_accuracy == 1.0
        assert not frame.infeasible


def test_a_frame_says_where_it_was_when(edge: mez.Edge) -> None:
    """From the camera into the application's hands, in order, and together they are its age."""
    with mez.publisher("dock/cam1", edge=edge) as camera, edge.subscribe("dock/*") as frames:
        deliver(camera, frames)
        frame = _traced(camera, frames)
        stages = [
            "published",
            "queued",
            "sent",
            "arriving",
            "arrived",
            "logged",
            "handed",
            "received",
            "taken",
        ]
        assert list(frame.trace.ms) == stages
        assert list(frame.trace.ms.values()) == sorted(frame.trace.ms.values())
        assert frame.trace.error_ms == frame.age_error_ms
        assert frame.age_ms is not None
        assert sum(ms for _, ms in frame.trace.steps()) == pytest.approx(frame.trace.ms["taken"])
        assert frame.trace.ms["taken"] <= frame.age_ms
        assert str(frame.trace).startswith("published ")
        assert frame.image is not None
        assert list(frame.trace.ms) == [*stages, "opened"]
        assert frame.trace.ms["opened"] >= frame.age_ms
        elsewhere = pickle.loads(pickle.dumps(frame))
        assert elsewhere.trace == frame.trace
        assert elsewhere.image is not None
        assert elsewhere.trace == frame.trace


def _traced(camera: mez.Publisher, frames: mez.Subscription) -> mez.Frame:
    """A frame that came after the clocks had been compared."""
    while True:
        camera.send(picture(3))
        frame = frames.next(timeout=30)
        if frame.trace.ms:
            return frame


def test_a_jpeg_is_passed_on_untouched(edge: mez.Edge) -> None:
    """Byte by byte, whichever buffer it comes in."""
    jpeg = _native.encode_jpeg(picture(3), 80)
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", deliver="every") as frames:
        assert deliver(camera, frames, jpeg).payload == jpeg
        for given in (bytearray(jpeg), memoryview(jpeg), np.frombuffer(jpeg, np.uint8)):
            camera.send(given)
            frame = frames.next(timeout=30)
            assert bytes(frame.payload) == jpeg
            assert frame.payload.readonly


def test_any_layout_of_pixels_is_taken(edge: mez.Edge) -> None:
    """Rows with gaps, flipped, transposed, one channel, alpha: the picture is what counts."""
    base = picture(20, 60, 40)
    wide = np.zeros((40, 90, 3), np.uint8)
    wide[:, 10:70] = base
    alpha = np.dstack([base, np.full((40, 60), 9, np.uint8)])
    grey = np.ascontiguousarray(base[:, :, 0])
    layouts = {
        "gaps between rows": (wide[:, 10:70], base),
        "upside down": (base[::-1], base[::-1]),
        "mirrored": (base[:, ::-1], base[:, ::-1]),
        "every second row": (base[::2], base[::2]),
        "channels reversed": (base[:, :, ::-1], base[:, :, ::-1]),
        "transposed": (base.transpose(1, 0, 2), base.transpose(1, 0, 2)),
        "Fortran order": (np.asfortranarray(base), base),
        "alpha": (alpha, base),
        "grey": (grey, np.dstack([grey] * 3)),
        "grey, three dimensions": (grey[:, :, None], np.dstack([grey] * 3)),
        "one row": (base[:1], base[:1]),
        "one column": (base[:, :1], base[:, :1]),
        "read-only": (np.frombuffer(base.tobytes(), np.uint8).reshape(base.shape), base),
    }
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", deliver="every") as frames:
        deliver(camera, frames)
        for name, (given, expected) in layouts.items():
            camera.send(given)
            image = frames.next(timeout=30).image
            assert image.shape == expected.shape, name
            assert np.abs(image.astype(int) - expected).max() <= 6, name


def test_a_slow_application_gets_the_newest_and_an_account_of_the_rest(edge: mez.Edge) -> None:
    """Delivered + skipped = published, from the first delivery on, and what is delivered is the newest."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        first = deliver(camera, frames)
        last, delivered, skipped = first, 1, Counter[str]()
        newest_wins = 0
        for number in range(60):
            camera.send(picture(number))
            time.sleep(0.005)
            if number % 10 == 9:
                time.sleep(0.2)  # All that was sent has come by now; the application was busy.
                frame = frames.next(timeout=30)
                assert frame.id > last.id
                assert frame.skipped_count == frame.sequence - last.sequence - 1
                newest_wins += frame.sequence == camera.published - 1
                last, delivered = frame, delivered + 1
                skipped.update(frame.skipped)
        assert newest_wins == 6
        assert skipped["application_busy"] > 0
        assert delivered + skipped.total() == last.sequence - first.sequence + 1
        assert frames.delivered == delivered
        assert number_of(last.image) == 59


def test_every_frame_is_delivered_when_asked_for(edge: mez.Edge) -> None:
    """Also to an application that takes its time, in order and without a hole."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", deliver="every") as frames:
        assert frames.deliver == "every"
        first = deliver(camera, frames)
        for number in range(30):
            camera.send(picture(number))
            time.sleep(0.01)  # The link carries one at a time, and the newest wins there.
        got = [frames.next(timeout=30)]
        while got[-1].sequence < camera.published - 1:
            got.append(frames.next(timeout=30))
        assert [frame.skipped.get("application_busy", 0) for frame in got] == [0] * len(got)
        total = sum(1 + frame.skipped_count for frame in got)
        assert total == got[-1].sequence - first.sequence


def test_one_subscription_takes_turns_among_cameras(edge: mez.Edge) -> None:
    """A pattern selects cameras that exist and cameras that come later."""
    with edge.subscribe("dock/**", timeout=30) as frames, mez.publisher("dock/a", edge=edge) as a:
        deliver(a, frames)
        with mez.publisher("dock/north/b", edge=edge) as b, mez.publisher("yard/c", edge=edge) as c:
            b.wait_connected(timeout=30)
            c.wait_connected(timeout=30)
            seen = set[str]()
            while seen < {"dock/a", "dock/north/b"}:
                for camera in (a, b, c):
                    camera.send(picture(1))
                seen.add(frames.next().camera)
            assert "yard/c" not in seen


def test_ages_and_capture_times(edge: mez.Edge) -> None:
    """The age counts from the call of `send`; a time that is given is kept to the nanosecond."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", deliver="every") as frames:
        frame = deliver(camera, frames)
        assert frame.clock_source == "broker"
        while frame.age_ms is None:
            frame = deliver(camera, frames)
        assert frame.age_error_ms is not None
        before = time.monotonic_ns()
        camera.send(picture(1))
        frame = frames.next(timeout=30)
        waited_ms = (time.monotonic_ns() - before) / 1e6
        assert frame.age_ms is not None
        assert frame.age_error_ms is not None
        assert -frame.age_error_ms <= frame.age_ms <= waited_ms + frame.age_error_ms
        assert abs(time.time_ns() - frame.captured_ns) < 60e9
        assert frame.captured.tzinfo is datetime.UTC

        given = time.time_ns() + 1_234_567
        camera.send(picture(1), captured=given)
        frame = frames.next(timeout=30)
        assert (frame.captured_ns, frame.clock_source) == (given, "publisher")
        moment = datetime.datetime.fromtimestamp(
            given // 10**9 + 5, datetime.timezone(datetime.timedelta(hours=2))
        )
        camera.send(picture(1), captured=moment)
        frame = frames.next(timeout=30)
        assert frame.captured == moment
        with pytest.raises(mez.CaptureTimeError) as refused:
            camera.send(picture(1), captured=given)
        assert refused.value.captured_ns == given
        assert refused.value.last_captured_ns == frame.captured_ns
        assert camera.refused == 1


def test_the_past_is_read_as_far_as_the_edge_holds_it(edge: mez.Edge) -> None:
    """Frames that crossed are there again, in order; what is not held is named, and not fetched."""
    with mez.publisher("cam", edge=edge) as camera:
        with edge.subscribe("cam", deliver="every") as frames:
            live = [deliver(camera, frames)]
            for number in range(10):
                camera.send(picture(number))
                live.append(frames.next(timeout=30))

        past = list(mez.read("cam", edge=edge, held_only=True))
        assert [frame.id for frame in past] == [frame.id for frame in live]
        assert bytes(past[3].payload) == bytes(live[3].payload)
        assert all(frame.not_held is None for frame in past)

        early = live[0].captured_ns - 10**9
        past = list(mez.read("cam", edge=edge, since=early, until=live[4].captured_ns, held_only=True))
        assert [frame.id for frame in past] == [frame.id for frame in live[:5]]
        assert past[0].not_held == mez.NotHeld(early, live[0].captured_ns, "gone")
        past = list(mez.read("cam", edge=edge, since="-10m", until="now", held_only=True))
        assert [frame.id for frame in past] == [frame.id for frame in live]

        tail = edge.subscribe("cam", since=live[8].captured_ns, until=live[9].captured_ns)
        assert tail.deliver == "every"
        assert [frame.id for frame in tail] == [live[8].id, live[9].id]
        with pytest.raises(mez.EndedError):
            tail.next()


def test_what_the_edge_knows_of_its_cameras(edge: mez.Edge) -> None:
    """Before, during and after."""
    assert mez.cameras(edge=edge) == []
    with mez.publisher("dock/cam1", edge=edge) as camera, edge.subscribe("**") as frames:
        frame = deliver(camera, frames)
        # The camera tells of itself a few times a second.
        while (info := edge.cameras("dock/*")[0]).published < camera.published:
            time.sleep(0.05)
        assert info.camera == "dock/cam1"
        assert info.connected
        assert info.identity.endswith("/camera/dock/cam1")
        assert info.subscriptions == 1
        assert info.newest is not None
        assert info.newest >= frame.id
        assert info.newest_captured is not None
        assert info.oldest_captured_ns is not None
        assert info.oldest_captured_ns <= frame.captured_ns
        assert (info.width, info.height) == (64, 48)
        assert info.frames_received >= 1
        assert info.link_bytes >= len(frame.payload)
        assert frame.link_bytes == len(frame.payload)
        assert f"({len(frame.payload) / 1000:.1f} kB over the link)" in repr(frame)
        # Ages are known once the clocks were compared.
        while None in (frame.age_ms, *frame.trace.ms.values()):
            frame = deliver(camera, frames)
        # People print it: microseconds will do.
        for ms in (frame.age_ms, *frame.trace.ms.values()):
            assert ms is not None
            assert ms == round(ms, 3)
        while (info := edge.cameras("dock/*")[0]).crossed_share is None:
            time.sleep(0.05)
        assert info.published_bytes == camera.published * len(frame.payload)
        assert info.clock_error_ms is not None
        assert edge.cameras("yard/*") == []


def test_what_video_saves_is_told(edge: mez.Edge) -> None:
    """Who wants stills gets them, and only video crossed the link. The frame and the columns say how much."""
    profile = profile_of(640, 480, rung="h264/q34")
    number = itertools.count()

    def publish() -> None:
        while not over.wait(1 / 30):
            camera.send(noisy(next(number)))

    over = threading.Event()
    with (
        mez.publisher("cam", edge=edge, quality=98) as camera,
        edge.subscribe(
            "cam", accuracy=0.9, latency_ms=5000, profile=profile, timeout=30, accept=[]
        ) as frames,
    ):
        camera.wait_connected(timeout=30)
        thread = threading.Thread(target=publish)
        thread.start()
        try:
            video = itertools.islice((frame for frame in frames if frame.rung.startswith("h264/q")), 30)
            for frame in video:
                assert frame.encoding == "jpeg"
                assert frame.link_bytes is not None
                assert 0 < frame.link_bytes < len(frame.payload)
                assert f"({frame.link_bytes / 1000:.1f} kB over the link)" in repr(frame)
            # The figures cover five seconds: until those without video are over.
            columns = ("--edge", f"unix://{edge.socket}", "--columns", "camera,link,share")
            while (info := edge.cameras("cam")[0]).crossed_share is None or info.crossed_share > 0.5:
                next(frames)
            listed = command("cameras", *columns)
            watched = command("subscribe", "cam", *columns, "--seconds", "3s")
        finally:
            over.set()
            thread.join()
    assert info.crossed_bits_per_second is not None
    assert info.published_bits_per_second is not None
    assert info.crossed_share == pytest.approx(info.crossed_bits_per_second / info.published_bits_per_second)
    for said in (listed, watched):
        row = [line for line in said.splitlines() if line.startswith("cam ")][-1]
        assert re.fullmatch(r"cam +\d[\d.]* [kM]bit/s +\d[\d.]* %", row), said
        assert float(row.split()[-2]) < 50, said


def noisy(number: int) -> NDArray[np.uint8]:
    """A picture with a fine pattern that stays where it is, on which something moves."""
    image = np.random.default_rng(7).integers(0, 255, (480, 640, 3), np.uint8)
    left = 8 * (number % 70)
    image[200:260, left : left + 60] = 255
    return image


def command(*words: str) -> str:
    """What the command `mez` prints."""
    mez_command = str(Path(sys.executable).parent / "mez")
    return subprocess.run([mez_command, *words], check=True, capture_output=True, text=True).stdout


def test_the_past_at_several_sizes_says_so_once(edge: mez.Edge, caplog: pytest.LogCaptureFixture) -> None:
    """Programs expect one size. Nobody is said to wait for a camera that has gone."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        for width, height in [(64, 48), (32, 24), (64, 48)]:
            deliver(camera, frames, picture(0, width, height))
    while edge.cameras()[0].connected:
        time.sleep(0.05)
    caplog.clear()
    sizes = {(frame.width, frame.height) for frame in mez.read("cam", edge=edge)}
    assert sizes == {(64, 48), (32, 24)}
    told = [record.getMessage() for record in caplog.records if "several sizes" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("cam: frames of the past have several sizes: 64x48, and 32x24 from frame")
    assert "quality='original'" in told[0]
    assert not any("waiting for one" in record.getMessage() for record in caplog.records)


def test_waiting_and_cameras_that_come_and_go_are_told(edge: mez.Edge) -> None:
    """A camera that does not exist is no error: the subscription says that it waits."""
    events: list[mez.Event] = []
    with edge.subscribe("dock/cam1", on_event=events.append) as frames:
        with pytest.raises(mez.WaitTimeoutError, match=r"no matching camera is connected; see mez\.cameras"):
            frames.next(timeout=0.2)
        assert frames.waiting
        with mez.publisher("dock/cam1", edge=edge) as camera:
            deliver(camera, frames)
            assert not frames.waiting
        while not frames.waiting:
            with pytest.raises(mez.WaitTimeoutError):
                frames.next(timeout=0.1)
    assert [event.kind for event in events] == ["waiting", "camera_up", "source", "camera_down"]
    assert events[1].camera == "dock/cam1"
    assert events[3].reason == "the camera's source has ended"


def test_everything_that_can_be_asked_for(edge: mez.Edge, tmp_path: Path) -> None:
    """Bounds and profiles are carried along; the contract says what became of them."""
    people = tmp_path / "people.json"
    document = profile_of(64, 48, original=1.0)
    people.write_text(json.dumps(document))
    profiles: list[Path | str | dict[str, object]] = [people, str(people), document]
    with mez.publisher("cam", edge=edge) as camera:
        for profile in profiles:
            with edge.subscribe(
                "cam",
                latency_ms=5000,
                accuracy=0.95,
                on_time_share=0.9,
                profile=profile,
                min_fps=5,
                on_infeasible="skip",
                priority=-3,
                application="everything",
                since="now",
                until=datetime.timedelta(hours=1),
            ) as frames:
                assert frames.deliver == "newest"
                contract = deliver(camera, frames).contract
                assert contract.state in ("ok", "latency_miss", "unverified")
                assert str(contract) == f"{contract.state}: {contract.reason}"


def test_the_environment_says_where_the_edge_is(edge: mez.Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    """`MEZ_EDGE` and `MEZ_KEYS`, as for the commands."""
    monkeypatch.setenv("MEZ_KEYS", str(edge.keys))
    monkeypatch.setenv("MEZ_EDGE", edge.address)
    with mez.publisher("cam") as camera:
        monkeypatch.setenv("MEZ_EDGE", f"unix://{edge.socket}")
        with mez.subscribe("cam") as frames:
            deliver(camera, frames)
        assert edge.grpc_address is not None
        monkeypatch.setenv("MEZ_EDGE", edge.grpc_address)
        assert [info.camera for info in mez.cameras()] == ["cam"]


def test_a_publisher_can_be_opened_again(edge: mez.Edge) -> None:
    """Each start is an epoch of its own, so that frames stay in order."""
    with edge.subscribe("cam") as frames:
        for epoch in (1, 2, 3):
            with mez.publisher("cam", edge=edge) as camera:
                frame = deliver(camera, frames)
                while frame.epoch < epoch:
                    frame = deliver(camera, frames)
                assert frame.epoch == epoch


def test_an_edge_for_a_while_leaves_nothing_behind(tmp_path: Path) -> None:
    """The host's own edge would list its cameras, with their starts."""
    with mez.edge() as edge, mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        deliver(camera, frames)
    assert not (tmp_path / "state").exists()


def test_two_edges_in_one_process() -> None:
    """They share a runtime and nothing else."""
    with mez.edge() as one, mez.edge() as two:
        assert one.address != two.address
        assert one.keys != two.keys
        with (
            mez.publisher("cam", edge=one) as a,
            mez.publisher("cam", edge=two) as b,
            one.subscribe("cam", deliver="every") as from_a,
            two.subscribe("cam", deliver="every") as from_b,
        ):
            deliver(a, from_a)
            deliver(b, from_b)
            a.send(picture(10))
            b.send(picture(80))
            assert number_of(from_a.next(timeout=30).image) == 10
            assert number_of(from_b.next(timeout=30).image) == 80
    assert one.closed
    assert not one.keys.exists()
    assert not one.socket.exists()


def test_a_camera_and_its_subscribers_move_to_the_next_edge() -> None:
    """While the first edge is gone, frames come through the second one; nobody does anything for it."""
    with (
        mez.edge() as one,
        mez.edge(keys=one.keys) as two,
        mez.publisher("cam", edge=[one, two]) as camera,
        mez.subscribe("cam", edge=[one, two]) as frames,
    ):
        before = deliver(camera, frames)
        assert camera.edge == one.address
        one.close()
        after = deliver(camera, frames)
        assert camera.edge == two.address
        assert (after.epoch, before.sequence < after.sequence) == (before.epoch, True)
        assert [info.camera for info in mez.cameras(edge=two) if info.connected] == ["cam"]


@pytest.mark.parametrize("edges", [[], ["edge"] * 9])
def test_too_few_and_too_many_edges_are_refused(edges: list[str]) -> None:
    """By publishers and by subscribers."""
    for attempt in (lambda: mez.publisher("cam", edge=edges), lambda: mez.subscribe("cam", edge=edges)):
        with pytest.raises(mez.ArgumentError, match="one to 8 edges"):
            attempt()


def test_an_edge_over_tls(edge: mez.Edge) -> None:
    """As from another host: gRPC with the keys of the site."""
    assert edge.grpc_address is not None
    with mez.publisher("cam", edge=edge.address, keys=edge.keys) as camera:
        with mez.subscribe("cam", edge=edge.grpc_address, keys=edge.keys, deliver="every") as frames:
            deliver(camera, frames)
            camera.send(picture(33))
            frame = frames.next(timeout=30)
            assert number_of(frame.image) == 33
            assert frame.age_ms is not None
        assert [info.camera for info in mez.cameras(edge=edge.grpc_address, keys=edge.keys)] == ["cam"]


def test_frames_survive_pickling(edge: mez.Edge) -> None:
    """To be worked on in another process; who replies is the one who received it."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        frame = deliver(camera, frames)
        copy = pickle.loads(pickle.dumps(frame))
        assert repr(copy) == repr(frame)
        assert copy.id == frame.id
        assert np.array_equal(copy.image, frame.image)
        with pytest.raises(mez.EndedError, match=r"reply in the process that received it"):
            copy.reply([])


def test_closing_ends_what_waits(edge: mez.Edge) -> None:
    """By another thread, and for good."""
    import threading

    frames = edge.subscribe("cam")
    ended = []

    def read() -> None:
        ended.append(list(frames))

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.2)
    frames.close()
    thread.join(30)
    assert ended == [[]]
    assert frames.closed
    frames.close()
    with pytest.raises(mez.EndedError, match="closed"):
        frames.next()
    assert list(frames) == []


def test_text_forms_say_what_one_wants_to_know(edge: mez.Edge) -> None:
    """Of everything that a user prints."""
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam") as frames:
        frame = deliver(camera, frames)
        assert repr(frame).startswith(f"<Frame cam 1/{frame.sequence} 64x48 jpeg original ")
        assert repr(frames) == "<Subscription cam newest, 1 connected, 1 delivered>"
        assert repr(camera) == f"<Publisher cam {camera.published} published>"
        assert str(frame.id) == f"1/{frame.sequence}"
        assert repr(edge) == f"<Edge {edge.address}>"
    assert repr(camera) == "<Publisher cam closed>"
