"""Edge brokers: what an edge knows of its cameras, and an edge inside this process."""

import datetime
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mez import _arguments as arguments
from mez import _native
from mez._frame import Contract
from mez._frame_id import FrameId
from mez._in_process import InProcessEdge
from mez._source import Source, source
from mez._subscribe import connect, subscribe
from mez._subscription import Subscription

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


@dataclass(frozen=True, slots=True)
class ContractStanding:
    """The state of a subscription's contract on a camera.

    Attributes:
        subscription: The subscription's number at the edge.
        application: Its application's name, for people.
        contract: The state of the contract, and the reason.
    """

    subscription: int
    application: str
    contract: Contract


@dataclass(frozen=True, slots=True)
class CameraInfo:
    """What an edge broker knows of a camera.

    Attributes:
        camera: The camera's name.
        connected: Whether it is connected and was heard of within the last 750 ms.
        identity: Its identity: `spiffe://SITE/camera/NAME`.
        derived_from: Of a stream that programs publish at the edge: what it is made of. Empty: a camera.
            The `identity` of such a stream is whoever publishes it, as grants name it.
        publishers: How many programs publish a derived stream now; `None` of a camera.
        subscriptions: How many subscriptions want its frames.
        newest: The newest frame that the edge holds; `None` before the first.
        newest_captured_ns: When that was captured, in nanoseconds since 1970-01-01 UTC.
        oldest_captured_ns: When the oldest frame that the edge holds was captured.
        edge_log_bytes: Bytes in its log at the edge.
        published: Frames published since the camera's start, as it last reported.
        refused: Frames of publishers that the camera refused.
        width: Pixels in a row of the newest frame published; 0 before the first.
        height: Rows of it.
        frames_per_second: Over the last few seconds.
        camera_log_bytes: Bytes in its own log.
        frames_received: Frames that arrived at the edge in time, since the edge's start.
        frames_late: Frames that arrived after a newer one.
        frames_cancelled: Frames that the camera cancelled on the way.
        frames_refused: Frames that the edge refused.
        link_bytes: Payload bytes that crossed the link, since the edge's start.
        published_bytes: Payload bytes of the frames published since the camera's start.
        published_bits_per_second: What it publishes, in payload bits per second over the last five seconds;
            `None` while it is not connected, and for its first second.
        crossed_bits_per_second: What of that crosses the link, over the same time; late frames and frames of
            the past included.
        clock_offset_ns: How far its monotonic clock is ahead of the edge's; `None` before they were compared.
        clock_error_ms: The largest error of `clock_offset_ns`, in milliseconds.
        round_trip_time_ms: The round-trip time of the clock comparison, in milliseconds.
        link_bits_per_second: The rate of its link, in bits per second, as far as frames have measured it.
        predicted_on_time_share: The share of frames that its policy expected on time, of about the last 500
            frames with a prediction. `None` if there is none: frames are not modified, or the policy does not
            predict.
        observed_on_time_share: The share of those frames that was on time.
        channel: The channel that it shares with others (`channels` of `mez.edge`, or `mez edge --channel`);
            `None` if it shares none.
        channel_bits_per_second: The rate of that channel for all its cameras together, in bits per second, as
            far as it was measured.
        share_frame_bytes: The share of the camera: how large its frames may be on average, in bytes. 0 if
            there is no room for frames that keep its floor; `None` if its frames are not limited.
        source: Whether its source gives frames. `None` if it has published no frame yet and nothing else is
            known of it, and of a camera that is not connected, unless its source had ended or is not tried
            again.
        contracts: The contract states of its subscriptions. Subscriptions that ask for nothing are left out.
    """

    camera: str
    connected: bool
    identity: str
    derived_from: tuple[str, ...]
    publishers: int | None
    subscriptions: int
    newest: FrameId | None
    newest_captured_ns: int | None
    oldest_captured_ns: int | None
    edge_log_bytes: int
    published: int
    refused: int
    width: int
    height: int
    frames_per_second: float
    camera_log_bytes: int
    frames_received: int
    frames_late: int
    frames_cancelled: int
    frames_refused: int
    link_bytes: int
    published_bytes: int
    published_bits_per_second: float | None
    crossed_bits_per_second: float | None
    clock_offset_ns: int | None
    clock_error_ms: float | None
    round_trip_time_ms: float | None
    link_bits_per_second: float | None
    predicted_on_time_share: float | None
    observed_on_time_share: float | None
    channel: str | None
    channel_bits_per_second: float | None
    share_frame_bytes: int | None
    source: Source | None
    contracts: tuple[ContractStanding, ...]

    @property
    def crossed_share(self) -> float | None:
        """The share of the published bytes that crosses the link now; `None` while that is unknown.

        Above 1 while frames of the past are fetched.
        """
        if not self.published_bits_per_second or self.crossed_bits_per_second is None:
            return None
        return self.crossed_bits_per_second / self.published_bits_per_second

    @property
    def newest_captured(self) -> datetime.datetime | None:
        """When the newest frame at the edge was captured, in UTC."""
        return _moment(self.newest_captured_ns)

    @property
    def oldest_captured(self) -> datetime.datetime | None:
        """When the oldest frame at the edge was captured, in UTC: how far back `mez.read` goes."""
        return _moment(self.oldest_captured_ns)


class Edge(InProcessEdge):
    """An edge broker inside this process. Made by `mez.edge`; a context manager, which closes it.

    Give it as `edge=` to `mez.publisher`, `mez.subscribe`, `mez.read` and `mez.cameras`. Other processes
    use `address` (to publish), `socket` or `grpc_address` (to subscribe) and `keys`.
    """

    def subscribe(self, pattern: str, **options: Any) -> Subscription:  # noqa: ANN401, those of mez.subscribe
        """Subscribe at this edge: `mez.subscribe(pattern, edge=self, …)`."""
        return subscribe(pattern, edge=self, **options)

    def cameras(self, pattern: str | None = None) -> list[CameraInfo]:
        """List the cameras of this edge: `mez.cameras(pattern, edge=self)`."""
        return cameras(pattern, edge=self)

    def forget_camera(self, camera: str) -> Path | None:
        """Forget a camera that is not connected: `mez.forget_camera(camera, edge=self)`."""
        return forget_camera(camera, edge=self)


def edge(
    *,
    keys: arguments.StrPath | None = None,
    name: str | None = None,
    listen: str = "127.0.0.1:0",
    grpc: str | None = "127.0.0.1:0",
    web: str | None = None,
    socket: arguments.StrPath | None = None,
    memory_bytes: int = 1 << 30,
    cameras_max: int = 64,
    forget_after: float | None = 7 * 86400.0,
    frame_bytes_max: int = 32 << 20,
    state: arguments.StrPath | None = None,
    store: arguments.StrPath | None = None,
    store_key: arguments.StrPath | None = None,
    store_bytes: int = arguments.STORE_BYTES,
    store_age: float | None = None,
    durability: str = "group",
    notes: bool = True,
    profiles: arguments.StrPath | None = None,
    channels: Mapping[str, str | Iterable[str]] | None = None,
    rights: Mapping[str, Mapping[str, str | Iterable[str]]] | None = None,
) -> Edge:
    """Start an edge broker inside this process: for a notebook, a test, or an application of its own.

    By default only this host can reach it. It then listens on free ports, with temporary keys. For other
    hosts, run `mez edge` as a process of its own.

    Args:
        keys: The folder of keys of a site. Default: a new site in a temporary folder, which is removed with
            the edge.
        name: Name of the edge within the site. Default: an edge identity in the folder of keys, else the
            host's name.
        listen: Address and port where cameras connect (UDP); port 0 is any free one.
        grpc: Address and port where applications on other hosts connect (gRPC over TLS); `None` for none.
        web: Address and port of the page, its data, health and metrics (HTTPS), such as `"127.0.0.1:0"`;
            `edge.web_address` says which port it is. `mez edge open --edge unix://SOCKET` prints a link that
            signs a browser in; the socket is `edge.socket`. Default: none.
        socket: Path of the Unix socket where applications on this host connect. Default: one in a temporary
            folder.
        memory_bytes: Memory for the frames of all cameras together, in bytes. When it is full, the oldest
            frames are dropped.
        cameras_max: The most cameras that may connect. Further ones are refused.
        forget_after: Seconds after which a camera that is not connected is forgotten, unless a log on disk
            holds frames of it, or a subscription names it. `None`: never.
        frame_bytes_max: The largest frame that is accepted, in bytes.
        state: The folder for state, which the edge needs again at its next start. Default: `MEZ_STATE`, else
            `/var/lib/mez` for root, else `~/.local/state/mez`. Without `state`, `keys` and `store` it is a
            temporary folder: nothing is remembered after the edge ends.
        store: The folder of a store: frames are also kept there, encrypted, and outlive this process.
            Default: frames are kept in memory only.
        store_key: The file with the store's keys, made by `mez store key`. Default: the keys that
            `MEZ_STORE_KEY` itself holds, else those in the systemd credential `mez-store-key`, else
            `store.key` in the folder of keys.
        store_bytes: Disk space for each camera, in bytes. When it is full, the oldest frames are
            dropped.
        store_age: Seconds for which frames stay on disk. Default: until the space is needed.
        durability: How much a power cut may lose: `"async"` half a minute, `"group"` a second, `"sync"` a
            fifth of a second.
        notes: Whether the store also keeps the replies of applications and the changes of their contracts
            (`mez.notes`, `mez store export`). They take a sixteenth of `store_bytes`. Without `store`, none
            are kept.
        profiles: The folder with profiles that subscriptions may choose by name. Default: `profiles` in the
            folder for state.
        channels: Channels that cameras share, such as radio cells: a name, and one or several patterns of
            cameras. Ten times a second the edge divides the channel between the cameras that somebody wants,
            and tells each camera how large its frames may be on average. It divides so that the worst-off
            camera fares best, with `"NAME:sum"` so that the sum of accuracies is highest, or with
            `"NAME:bandwidth"` so that all get the same bandwidth. A camera in several channels belongs to the
            first. `CameraInfo` shows each camera's share. Default: none.
        rights: Who may do what: for each application (`app/counter`, `app/**` for all) the verbs, each with
            one or several patterns of cameras. Everything else is refused. They stay as they are as long as
            the edge runs. On the Unix socket, the user that this process runs as may do everything, also with
            `edge=` this object and with `edge.subscribe`. To be an application that can be refused, dial
            `edge.grpc_address` with `edge.keys`.
            Default: what `rights.toml` in the folder of keys says; with temporary keys, every application
            that has them may do everything but reset cameras.

    Raises:
        ArgumentError, ArgumentTypeError: An argument has a bad value; `field` names it.
        KeysError: The keys cannot be used.
        ListenError: A port or the socket is in use, or cannot be listened on.

    Example:
        ```python
        with mez.edge() as edge, mez.publisher("cam", edge=edge) as cam, edge.subscribe("cam") as frames:
            cam.send(image)
            frame = frames.next(timeout=5)
        ```

        The cameras of the dock and one in the yard share a radio cell:

        ```python
        with mez.edge(channels={"hall": ["dock/*", "yard/cam1"]}) as edge:
            ...
            for camera in edge.cameras():
                print(camera.camera, camera.channel, camera.share_frame_bytes)
        ```

        Applications may watch the dock and send results back:

        ```python
        with mez.edge(rights={"app/**": {"watch": "dock/*", "reply": "dock/*"}}) as edge:
            mez.subscribe("dock/*", edge=edge.grpc_address, keys=edge.keys)   # an application: it may
            mez.subscribe("yard/*", edge=edge.grpc_address, keys=edge.keys)   # mez.PermissionDenied
            mez.subscribe("yard/*", edge=edge)      # the edge's own user: it may do everything
        ```
    """
    # Here, because only few programs are an edge.
    import shutil
    import tempfile

    temporary_keys = keys is None
    # Not a TemporaryDirectory: a forked child that ends would remove its parent's.
    path = arguments.optional_path("socket", socket)
    folder = Path(tempfile.mkdtemp(prefix="mez-")) if temporary_keys or path is None else None
    known = arguments.optional_path("state", state)
    if known is None and temporary_keys and store is None:
        # Or else its cameras would stand among those of the host's own edge.
        known = f"{folder}/state"
    try:
        native = _native.Edge(
            keys=arguments.optional_path("keys", keys),
            name=arguments.optional_text("name", name),
            listen=arguments.text("listen", listen),
            grpc=arguments.optional_text("grpc", grpc),
            web=arguments.optional_text("web", web),
            socket=path if path is not None else f"{folder}/edge.sock",
            memory_bytes=arguments.whole("memory_bytes", memory_bytes, 1 << 16, 1 << 44),
            cameras_max=arguments.whole("cameras_max", cameras_max, 1, 1 << 16),
            forget_after=arguments.timeout("forget_after", forget_after),
            frame_bytes_max=arguments.whole(
                "frame_bytes_max", frame_bytes_max, 1, arguments.FRAME_BYTES_CEILING
            ),
            state=known,
            store=arguments.on_disk(store, store_key, store_bytes, store_age, durability, notes),
            profiles=arguments.optional_path("profiles", profiles),
            channels=arguments.channels(channels),
            rights=arguments.rights(rights),
        )
    except BaseException:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Edge(native, folder, temporary_keys)


def cameras(
    pattern: str | None = None,
    *,
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None = None,
    keys: arguments.StrPath | None = None,
    connect_timeout: float | None = 5.0,
) -> list[CameraInfo]:
    """List the cameras of an edge broker by name: those that are connected, and those that were.

    Args:
        pattern: Only cameras that match, such as `dock/*`. Default: all.
        edge: As in `mez.subscribe`.
        keys: As in `mez.subscribe`.
        connect_timeout: As in `mez.subscribe`.

    Raises:
        ArgumentError, KeysError, ConnectError: As in `mez.subscribe`.
        PermissionDenied: No grant lets this program see these cameras.

    Example:
        ```python
        for camera in mez.cameras():
            print(camera.camera, camera.connected, camera.frames_per_second)
        ```
    """
    client = connect(edge, keys=keys, connect_timeout=connect_timeout)
    found = [_info(record) for record in client.cameras(arguments.optional_text("pattern", pattern))]
    if not found and edge is None and pattern is not None and not set(pattern) & set("*/"):
        warnings.warn(
            f"the edge that was asked knows no camera {pattern!r}; if that is a host, write "
            f"mez.cameras(edge={pattern!r})",
            stacklevel=2,
        )
    return found


def forget_camera(
    camera: str,
    *,
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None = None,
    keys: arguments.StrPath | None = None,
    connect_timeout: float | None = 5.0,
) -> Path | None:
    """Make an edge broker forget a camera that is not connected: it is no longer listed.

    Contracts do not warn of it any more, and subscriptions go on without it. If it connects again, it is a
    new camera. Works only on the edge's own host, through its Unix socket.

    Args:
        camera: The camera's name.
        edge: As in `mez.subscribe`.
        keys: As in `mez.subscribe`.
        connect_timeout: As in `mez.subscribe`.

    Returns:
        The folder on the edge's host that the camera's log was moved to; `None` if there was none on disk.

    Raises:
        NotFoundError: The edge knows no such camera.
        BrokerError: The camera is connected (`reason` is `CAMERA_CONNECTED`), or the edge runs on another
            host.
        ArgumentError, KeysError, ConnectError: As in `mez.subscribe`.
    """
    client = connect(edge, keys=keys, connect_timeout=connect_timeout)
    folder = client.forget_camera(arguments.text("camera", camera))
    return None if folder is None else Path(folder)


def _info(record: _native.CameraRecord) -> CameraInfo:
    newest = record.newest
    return CameraInfo(
        camera=record.camera,
        connected=record.connected,
        identity=record.identity,
        derived_from=tuple(record.derived_from),
        publishers=record.publishers,
        subscriptions=record.subscriptions,
        newest=None if newest is None else FrameId(newest[0], newest[1]),
        newest_captured_ns=None if newest is None else newest[2],
        oldest_captured_ns=record.oldest_captured_ns,
        edge_log_bytes=record.edge_log_bytes,
        published=record.published,
        refused=record.refused,
        width=record.width,
        height=record.height,
        frames_per_second=record.frames_per_second,
        camera_log_bytes=record.camera_log_bytes,
        frames_received=record.frames_received,
        frames_late=record.frames_late,
        frames_cancelled=record.frames_cancelled,
        frames_refused=record.frames_refused,
        link_bytes=record.link_bytes,
        published_bytes=record.published_bytes,
        published_bits_per_second=record.published_bits_per_second,
        crossed_bits_per_second=record.crossed_bits_per_second,
        clock_offset_ns=record.clock_offset_ns,
        clock_error_ms=record.clock_error_ms,
        round_trip_time_ms=record.round_trip_time_ms,
        link_bits_per_second=record.link_bits_per_second,
        predicted_on_time_share=record.predicted_on_time_share,
        observed_on_time_share=record.observed_on_time_share,
        channel=record.channel,
        channel_bits_per_second=record.channel_bits_per_second,
        share_frame_bytes=record.share_frame_bytes,
        source=None if record.source is None else source(record.source),
        contracts=tuple(
            ContractStanding(subscription, application, Contract(state, reason))
            for subscription, application, state, reason in record.contracts
        ),
    )


def _moment(ns: int | None) -> datetime.datetime | None:
    return None if ns is None else _EPOCH + datetime.timedelta(microseconds=ns // 1000)
