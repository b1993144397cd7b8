"""Whatever makes no sense is refused, by name and with a remedy, and nothing else is disturbed."""

import datetime
import socket
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mez
from mez import _native
from tests.support import deliver, enrolled, picture


def jpeg(quality: int = 90) -> bytes:
    """A small valid image."""
    return _native.encode_jpeg(picture(1), quality)


# What is sent, the error, and what its message has to say.
UNFIT: list[tuple[str, object, type[mez.Error], str]] = [
    ("None", None, mez.ArgumentTypeError, r"the image is None; check what the camera returned"),
    ("a list", [[1, 2], [3, 4]], mez.ArgumentTypeError, r"of type list; pass a NumPy array .*numpy\.asarray"),
    ("a path", Path("x.jpg"), mez.ArgumentTypeError, r"of type PosixPath"),
    ("floats", np.zeros((4, 4, 3)), mez.ImageError, r"type float64, .*not 8-bit; .*astype"),
    ("16 bits", np.zeros((4, 4), np.uint16), mez.ImageError, r"type uint16"),
    ("signed", np.zeros((4, 4), np.int8), mez.ImageError, r"type int8"),
    ("a mask", np.zeros((4, 4), bool), mez.ImageError, r"type bool"),
    ("channels first", np.zeros((3, 48, 64), np.uint8), mez.ImageError, r"image\.transpose\(1, 2, 0\)"),
    ("a batch", np.zeros((1, 48, 64, 3), np.uint8), mez.ImageError, r"image\[0\]"),
    ("two channels", np.zeros((48, 64, 2), np.uint8), mez.ImageError, r"\(height, width, 3\) for BGR"),
    ("no rows", np.zeros((0, 64, 3), np.uint8), mez.ImageError, r"64x0 pixels"),
    ("no columns", np.zeros((4, 0), np.uint8), mez.ImageError, r"0x4 pixels"),
    (
        "too wide",
        np.zeros((1, 70000, 3), np.uint8),
        mez.ImageError,
        r"at most 65500 along a side; scale it down",
    ),
    ("nothing", b"", mez.ImageError, r"no bytes at all"),
    ("text", b"hello", mez.ImageError, r"start with 68 65 6C 6C"),
    ("PNG", b"\x89PNG\r\n\x1a\n" + bytes(30), mez.ImageError, r"looks like PNG; encode the image as JPEG"),
    ("cut off", jpeg()[:-2], mez.ImageError, r"cut off"),
    ("gaps", np.frombuffer(jpeg(), np.uint8)[::2], mez.ImageError, r"gaps between them; pass bytes"),
]


@pytest.mark.parametrize(
    ("given", "error", "message"), [row[1:] for row in UNFIT], ids=[row[0] for row in UNFIT]
)
def test_what_is_no_image_is_refused(
    edge: mez.Edge, given: object, error: type[mez.Error], message: str
) -> None:
    """And the next frame goes through, with the number that this one would have had."""
    with mez.publisher("cam", edge=edge) as camera:
        with pytest.raises(error, match=message):
            camera.send(given)  # type: ignore[arg-type]
        assert (camera.published, camera.refused) == (0, 1)
        assert camera.send(jpeg()) == (1, 0)


def test_frames_above_the_limit_are_refused(edge: mez.Edge) -> None:
    """With the size and the limit, before memory is taken for bytes and after encoding for pixels."""
    noise = np.random.default_rng(1).integers(0, 256, (200, 200, 3), np.uint8)
    with mez.publisher("cam", edge=edge, frame_bytes_max=5000) as camera:
        for given in (noise, _native.encode_jpeg(noise, 95)):
            with pytest.raises(
                mez.FrameTooLargeError, match="more than the limit of 5000; raise frame_bytes_max"
            ) as refused:
                camera.send(given)
            assert refused.value.size_bytes > refused.value.size_bytes_max == 5000
            assert refused.value.remedy == "raise frame_bytes_max or encode it smaller"
        assert camera.send(picture(0)) == (1, 0)
    with (
        mez.publisher("cam", edge=edge, memory_bytes=1 << 16) as camera,
        pytest.raises(mez.FrameTooLargeError, match="does not fit into a log of 65536 bytes"),
    ):
        camera.send(_native.encode_jpeg(noise, 100))


def test_capture_times_have_to_increase(edge: mez.Edge) -> None:
    """Both times are in the error; frames go on."""
    with mez.publisher("cam", edge=edge) as camera:
        camera.send(jpeg(), captured=2_000_000_000)
        for earlier in (2_000_000_000, 1_999_999_999):
            with pytest.raises(mez.CaptureTimeError, match="1970-01-01T00:00:02") as refused:
                camera.send(jpeg(), captured=earlier)
            assert (refused.value.captured_ns, refused.value.last_captured_ns) == (earlier, 2_000_000_000)
            assert refused.value.field == "captured"
        assert camera.send(jpeg(), captured=2_000_000_001) == (1, 1)


ARGUMENTS: list[tuple[str, Callable[[mez.Edge], object], str, str]] = [
    ("camera", lambda e: mez.publisher("dock//cam", edge=e), "camera", "empty segment"),
    ("camera type", lambda e: mez.publisher(7, edge=e), "camera", "give a text"),  # type: ignore[arg-type]
    ("wildcard", lambda e: mez.publisher("dock/*", edge=e), "camera", "not allowed"),
    ("quality", lambda e: mez.publisher("cam", edge=e, quality=101), "quality", "from 1 to 100"),
    ("quality type", lambda e: mez.publisher("cam", edge=e, quality=9.5), "quality", "whole number"),  # type: ignore[arg-type]
    ("memory_bytes", lambda e: mez.publisher("cam", edge=e, memory_bytes=-1), "memory_bytes", "whole number"),
    ("edge", lambda _: mez.publisher("cam", edge="http://edge"), "edge", "write HOST or HOST:PORT"),
    ("edge port", lambda _: mez.publisher("cam", edge="edge:99999"), "edge", "write HOST or HOST:PORT"),
    ("both", lambda e: mez.publisher("cam", edge=e, broker="unix:"), "broker", "give only broker"),
    ("broker", lambda _: mez.publisher("cam", broker="a b"), "broker", "not a broker's address"),
    ("pattern", lambda e: e.subscribe("dock/cam*"), "pattern", "mixes '\\*' with other characters"),
    ("pattern type", lambda e: e.subscribe(None), "pattern", "give a text"),  # type: ignore[arg-type]
    ("subscribe edge", lambda _: mez.subscribe("cam", edge="http://edge"), "edge", "unix:///PATH"),
    ("latency", lambda e: e.subscribe("cam", latency_ms=0), "latency_ms", "above 0 ms"),
    ("latency sign", lambda e: e.subscribe("cam", latency_ms=-5), "latency_ms", "above 0"),
    ("latency type", lambda e: e.subscribe("cam", latency_ms="100"), "latency_ms", "give a number"),
    ("accuracy", lambda e: e.subscribe("cam", accuracy=95), "accuracy", "not between 0 and 1"),
    ("share", lambda e: e.subscribe("cam", on_time_share=0), "on_time_share", "above 0 and at most 1"),
    ("min_fps", lambda e: e.subscribe("cam", min_fps=-1), "min_fps", "between 0 and 1000"),
    (
        "on_infeasible",
        lambda e: e.subscribe("cam", on_infeasible="wait"),
        "on_infeasible",
        '"degrade", "skip" or "stop"',
    ),
    ("deliver", lambda e: e.subscribe("cam", deliver="all"), "deliver", '"newest" or "every"'),
    ("priority", lambda e: e.subscribe("cam", priority=1 << 40), "priority", "whole number"),
    ("application", lambda e: e.subscribe("cam", application="x" * 129), "application", "at most 128"),
    ("span", lambda e: e.subscribe("cam", since="-5m", until="-10m"), "until", "is before the beginning"),
    ("end alone", lambda e: e.subscribe("cam", until="-10m"), "until", "is in the past"),
    ("time text", lambda e: e.subscribe("cam", since="10 minutes ago"), "since", '"-10m"'),
    ("time zone", lambda e: e.subscribe("cam", since=datetime.datetime(2026, 1, 1)), "since", "time zone"),
    (
        "time zone in text",
        lambda e: e.subscribe("cam", since="2026-01-01T00:00:00"),
        "since",
        "add Z for UTC",
    ),
    ("time type", lambda e: e.subscribe("cam", since=1.5), "since", "whole nanoseconds"),
    ("time range", lambda e: e.subscribe("cam", since=-1), "since", "between 1970 and 2554"),
    (
        "profile file",
        lambda e: e.subscribe("cam", profile="none.json"),
        "profile",
        "cannot read the profile none.json",
    ),
    (
        "profile name",
        lambda e: e.subscribe("cam", profile="people"),
        "profile",
        'no profile "people" in',
    ),
    ("profile content", lambda e: e.subscribe("cam", profile={"x": object()}), "profile", "written as JSON"),
    (
        "profile size",
        lambda e: e.subscribe("cam", profile={"x": "y" * (1 << 20)}),
        "profile",
        "more than 1048576",
    ),
    ("timeout", lambda e: e.subscribe("cam", timeout=-1), "timeout", "seconds, 0 or more"),
    (
        "connect_timeout",
        lambda e: mez.cameras(edge=e, connect_timeout=float("nan")),
        "connect_timeout",
        "seconds",
    ),
    ("listen", lambda _: mez.edge(listen="localhost"), "listen", "127.0.0.1:0"),
    ("cameras_max", lambda _: mez.edge(cameras_max=0), "cameras_max", "from 1"),
    ("channels", lambda _: mez.edge(channels=["dock/*"]), "channels", r'such as \{"hall": \["dock/\*"'),  # type: ignore[arg-type]
    ("channel name", lambda _: mez.edge(channels={5: "dock/*"}), "channels", "has the name 5; give a text"),  # type: ignore[dict-item]
    ("channel letters", lambda _: mez.edge(channels={"the hall": "**"}), "channels", "choose another, such"),
    ("channel goal", lambda _: mez.edge(channels={"hall:fair": "**"}), "channels", "use max-min"),
    (
        "channel twice",
        lambda _: mez.edge(channels={"hall": "dock/*", "hall:sum": "yard/*"}),
        "channels",
        "declare it once",
    ),
    ("no patterns", lambda _: mez.edge(channels={"hall": []}), "channels", "hall names no cameras; give it"),
    (
        "patterns",
        lambda _: mez.edge(channels={"hall": [None]}),  # type: ignore[list-item]
        "channels",
        r"has \[None\] for 'hall'; give patterns",
    ),
    ("channel pattern", lambda _: mez.edge(channels={"hall": "dock*"}), "channels", "the channel hall: patt"),
]


@pytest.mark.parametrize(
    ("call", "field", "message"), [row[1:] for row in ARGUMENTS], ids=[row[0] for row in ARGUMENTS]
)
def test_arguments_that_make_no_sense_are_named(
    edge: mez.Edge, call: Callable[[mez.Edge], object], field: str, message: str
) -> None:
    """By the name that they have in Python."""
    with pytest.raises((mez.ArgumentError, mez.ArgumentTypeError), match=message) as refused:
        call(edge)
    assert refused.value.field == field
    assert isinstance(refused.value, mez.Error)
    assert isinstance(refused.value, ValueError | TypeError)


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    """Is dialled for a while, and then named with what to do."""
    nowhere = tmp_path / "edge.sock"
    with pytest.raises(mez.ConnectError, match=r"the socket does not exist; is the broker running\?"):
        mez.subscribe("cam", edge=f"unix://{nowhere}", connect_timeout=0.3)
    with pytest.raises(ConnectionError, match="no broker at"):
        mez.cameras(edge=f"unix:{nowhere}", connect_timeout=0)
    with pytest.raises(mez.ConnectError, match="no broker at"):
        mez.publisher("cam", broker=f"unix://{nowhere}")


def test_keys_that_are_missing_or_do_not_fit(
    edge: mez.Edge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No keys, a folder without any, keys that others can change, and the keys of another site."""
    with pytest.raises(mez.KeysError, match=r"no keys were found.*mez keys init"):
        mez.publisher("cam", edge="localhost")
    with pytest.raises(mez.KeysError, match=str(tmp_path)):
        mez.subscribe("cam", edge="127.0.0.1:1", keys=tmp_path / "none")
    monkeypatch.setenv("MEZ_KEYS", str(tmp_path))
    with pytest.raises(mez.KeysError, match=str(tmp_path)):
        mez.publisher("cam", edge="localhost")

    copied = tmp_path / "copied"
    copied.mkdir(mode=0o777)
    copied.chmod(0o777)
    (copied / "authority.pem").write_bytes((edge.keys / "authority.pem").read_bytes())
    with pytest.raises(mez.KeysError, match="may be changed by others"):
        mez.publisher("cam", edge=edge.address, keys=copied)
    copied.chmod(0o700)
    with pytest.raises(mez.KeysError, match="holds no identity camera/cam"):
        mez.publisher("cam", edge=edge.address, keys=copied)

    with mez.edge() as other:
        with mez.publisher("cam", edge=edge.address, keys=other.keys) as camera:
            with pytest.raises(
                mez.WaitTimeoutError, match=r"not connected to the edge at .*certificate.*authority"
            ):
                camera.wait_connected(timeout=1.5)
            assert not camera.connected
        assert edge.grpc_address is not None
        with pytest.raises(mez.ConnectError, match="certificate"):
            mez.cameras(edge=edge.grpc_address, keys=other.keys, connect_timeout=0)


def test_a_camera_that_is_there_already(edge: mez.Edge, tmp_path: Path) -> None:
    """One broker of a camera at a time on a machine."""
    with mez.publisher("dock/cam1", edge=edge) as camera:
        with pytest.raises(
            mez.CameraInUseError, match="a camera broker for dock/cam1 is already running"
        ) as refused:
            mez.publisher("dock/cam1", edge=edge)
        assert isinstance(refused.value, mez.StateError)
        with edge.subscribe("dock/cam1") as frames:
            deliver(camera, frames)
    damaged = tmp_path / "damaged"
    (damaged / "cameras" / "cam").mkdir(parents=True)
    (damaged / "cameras" / "cam" / "epoch").write_text("many")
    with pytest.raises(mez.StateError, match="does not hold an epoch; remove the file"):
        mez.publisher("cam", edge=edge, state=damaged)


def test_a_port_or_socket_that_is_in_use(edge: mez.Edge, tmp_path: Path) -> None:
    """Is named, and nothing is left behind."""
    with pytest.raises(mez.ListenError, match=edge.address.rpartition(":")[2]):
        mez.edge(listen=edge.address)
    assert edge.grpc_address is not None
    with pytest.raises(OSError, match="is another broker running"):
        mez.edge(grpc=edge.grpc_address)
    with pytest.raises(mez.ListenError, match="another broker is listening on"):
        mez.edge(socket=edge.socket)
    with pytest.raises(mez.ListenError, match="too long"):
        mez.edge(socket=tmp_path / ("x" * 120))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(mez.ListenError):
            mez.edge(listen=f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_name_that_somebody_else_holds(edge: mez.Edge, tmp_path: Path) -> None:
    """Another identity is refused, and the one that holds the name is not disturbed."""
    host = enrolled(edge, "camera/dock", tmp_path / "host").parent
    device = enrolled(edge, "camera/dock/cam1", tmp_path / "device").parent
    with (
        mez.publisher("dock/cam1", edge=edge.address, keys=host) as first,
        edge.subscribe("dock/cam1", deliver="every") as frames,
    ):
        deliver(first, frames)
        with mez.publisher("dock/cam1", edge=edge.address, keys=device, state=tmp_path / "other") as second:
            with pytest.raises(
                mez.WaitTimeoutError, match=r"within 1 s: the edge refused the camera: .*already connected"
            ):
                second.wait_connected(timeout=1.0)
            sent = first.send(picture(1))
            assert frames.next(timeout=30).id == sent
    with pytest.raises(mez.KeysError, match="holds no identity camera/yard/cam1; it holds camera/dock"):
        mez.publisher("yard/cam1", edge=edge.address, keys=host)


def test_cameras_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    """With the reason, where somebody waits for the camera."""
    with mez.edge(cameras_max=1) as edge, mez.publisher("one", edge=edge) as one:
        one.wait_connected(timeout=30)
        with (
            mez.publisher("two", edge=edge) as two,
            pytest.raises(mez.WaitTimeoutError, match=r"as many|most|limit"),
        ):
            two.wait_connected(timeout=1)


def test_reading_a_camera_that_nobody_knows(edge: mez.Edge) -> None:
    """Names those that are known."""
    with pytest.raises(mez.NotFoundError, match="the edge knows no camera cam; it knows none at all"):
        mez.read("cam", edge=edge)
    with mez.publisher("dock/cam1", edge=edge) as camera:
        camera.wait_connected(timeout=30)
        with pytest.raises(LookupError, match="it knows dock/cam1"):
            mez.read("cam", edge=edge)


def test_what_is_closed_says_so(edge: mez.Edge) -> None:
    """And how to go on."""
    camera = mez.publisher("cam", edge=edge)
    camera.close()
    camera.close()
    assert camera.closed
    assert not camera.connected
    for call in (lambda: camera.send(jpeg()), camera.wait_connected, camera.next_reply):
        with pytest.raises(mez.EndedError, match="the publisher of camera cam is closed; open a new one"):
            call()
    assert list(camera.replies()) == []
    edge.close()
    for use in (lambda: mez.publisher("cam", edge=edge), lambda: edge.subscribe("cam"), edge.cameras):
        with pytest.raises(mez.EndedError, match="the edge is closed"):
            use()


def test_an_edge_that_goes_away(edge: mez.Edge) -> None:
    """Ends a subscription that does not want to wait, and holds one that does."""
    events: list[mez.Event] = []
    staying = edge.subscribe("cam", on_event=events.append)
    leaving = edge.subscribe("cam", reconnect=False)
    edge.close()
    with pytest.raises(mez.ConnectError):
        leaving.next(timeout=30)
    with pytest.raises(mez.WaitTimeoutError, match="is lost; trying to reconnect"):
        staying.next(timeout=0.5)
    assert not staying.connected
    assert [event.kind for event in events] == ["waiting", "disconnected"]
    staying.close()


def test_a_damaged_image_is_found_when_it_is_decoded(edge: mez.Edge) -> None:
    """Its payload is there all the same, and the next frame is sound."""
    whole = bytearray(_native.encode_jpeg(picture(9, 320, 240), 95))
    # Markers where there should be pixels: what a camera with a loose cable sends.
    middle = len(whole) // 2
    whole[middle : middle + 40] = b"\xff\xd0" * 20
    with mez.publisher("cam", edge=edge) as camera, edge.subscribe("cam", deliver="every") as frames:
        deliver(camera, frames)
        camera.send(bytes(whole))
        frame = frames.next(timeout=30)
        with pytest.raises(mez.ImageError, match="the JPEG is damaged"):
            frame.image  # noqa: B018, the access decodes
        assert frame.payload == whole
        camera.send(jpeg())
        assert frames.next(timeout=30).image.shape == (48, 64, 3)


def test_the_tree_of_errors() -> None:
    """Every error has a place in it, a docstring, and the builtin class that says the same."""
    import mez.errors

    for name in mez.errors.__all__:
        error = getattr(mez.errors, name)
        assert issubclass(error, mez.Error)
        assert getattr(mez, name) is error
        assert error.__doc__
    for error, builtin in [
        (mez.ArgumentError, ValueError),
        (mez.ArgumentTypeError, TypeError),
        (mez.ImageError, ValueError),
        (mez.FrameTooLargeError, ValueError),
        (mez.CaptureTimeError, ValueError),
        (mez.ReplyTooLargeError, ValueError),
        (mez.ListenError, OSError),
        (mez.ConnectError, ConnectionError),
        (mez.WaitTimeoutError, TimeoutError),
        (mez.NotFoundError, LookupError),
        (mez.ForkedError, RuntimeError),
    ]:
        assert issubclass(error, builtin)
    assert mez.Error("it is so; do that").remedy == "do that"
    assert mez.Error("it is so").remedy is None


def test_time_passes_while_nothing_is_published(edge: mez.Edge) -> None:
    """A limit of zero looks once; a negative one is refused."""
    with edge.subscribe("cam") as frames:
        with pytest.raises(mez.WaitTimeoutError):
            frames.next(timeout=0)
        with pytest.raises(mez.ArgumentError, match="0 or more"):
            frames.next(timeout=-1)
        before = time.monotonic()
        with pytest.raises(TimeoutError):
            frames.next(timeout=0.2)
        assert time.monotonic() - before >= 0.2


def test_one_user_cannot_take_all_subscriptions(edge: mez.Edge) -> None:
    """The one too many is refused at once, with the remedy."""
    subscriptions = []
    with pytest.raises(mez.BusyError, match=r"end some|close some") as refused:
        for _ in range(300):
            subscriptions.append(mez.subscribe("**", edge=edge))
    assert refused.value.reason in {"TOO_MANY_SUBSCRIPTIONS", "TOO_MANY_CONNECTIONS"}
    assert len(subscriptions) >= 100
    for subscription in subscriptions:
        subscription.close()
