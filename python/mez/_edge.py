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
    """The state of one subscription's contract on a camera.

    Attributes:
        subscription: The subscription's number at the edge.
        application: The application's name, for people.
        contract: The state of the contract, and the reason.
    """

    subscription: int
    application: str
    contract: Contract


@dataclass(frozen=True, slots=True)
class CameraInfo:
    """What an edge knows about a camera or a derived stream.

    Attributes:
        camera: The name of the camera or stream.
        connected: Whether it is connected and has sent something within the last 750 ms (1.75 s if nobody
            wants its frames).
        identity: Its identity: `spiffe://SITE/camera/NAME`.
        derived_from: For a derived stream: its sources. Empty for a camera. The `identity` of a derived
            stream is that of its publisher, in the form of grants (`app/counter`).
        publishers: For a derived stream: how many programs publish it now. `None` for a camera.
        subscriptions: Number of subscriptions that want its frames.
        newest: The newest frame that the edge has. `None` if there is none.
        newest_captured_ns: When that frame was captured, in nanoseconds since 1970-01-01 UTC.
        oldest_captured_ns: When the oldest frame that the edge has was captured, in nanoseconds since
            1970-01-01 UTC.
        edge_log_bytes: Size of the camera's log at the edge, in bytes.
        published: Number of frames published since the camera's start, from its last report.
        refused: Number of frames that the camera refused when they were published.
        width: Width of the newest published frame, in pixels. 0 if there is none.
        height: Height of the newest published frame, in pixels. 0 if there is none.
        frames_per_second: Published frames per second, over the last few seconds.
        camera_log_bytes: Size of the camera's own log, in bytes.
        frames_received: Number of frames that arrived at the edge in time, since the edge's start.
        frames_late: Number of frames that arrived after a newer one.
        frames_cancelled: Number of frames that the camera began to send and cancelled.
        frames_refused: Number of frames that the edge refused.
        link_bytes: Payload bytes that crossed the link since the edge's start.
        published_bytes: Payload bytes of the frames published since the camera's start.
        published_bits_per_second: The rate at which it publishes, in payload bits per second, over the last
            five seconds. `None` if it is not connected, and in its first second.
        crossed_bits_per_second: The rate at which frames cross the link, in payload bits per second, over the
            same time. Late frames and frames of the past are included.
        clock_offset_ns: How far its monotonic clock is ahead of the edge's, in nanoseconds. `None` until the
            clocks have been compared.
        clock_error_ms: The largest possible error of `clock_offset_ns`, in milliseconds.
        round_trip_time_ms: The round-trip time of that comparison, in milliseconds.
        link_bits_per_second: The rate of its link, in bits per second, as measured with frames. `None` if it
            is unknown.
        predicted_on_time_share: The share of frames that its policy expected to be on time, over about the
            last 500 frames with a prediction. `None` if there is no prediction: frames are sent unchanged, or
            the policy does not predict.
        observed_on_time_share: The share of these frames that was on time.
        channel: The channel that it shares with other cameras (`channels` of `mez.edge`, or `mez edge
            --channel`). `None` if it shares none.
        channel_bits_per_second: The rate of that channel for all its cameras together, in bits per second, as
            measured. `None` if it is unknown.
        share_frame_bytes: The camera's share of the channel: the largest mean frame size, in bytes. 0 if the
            channel has no room for frames that keep the accuracy floor. `None` if its frames are not limited.
        source: The state of its source. `None` if it is unknown: the camera has published no frame yet, or it
            is not connected. If the source of a camera that is not connected has ended, or is not tried
            again, the state is kept.
        contracts: The states of the contracts of its subscriptions. Subscriptions without any bound are left
            out.
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
        """The share of the published bytes that crosses the link now. `None` if it is unknown.

        It may be above 1 while frames of the past are fetched.
        """
        if not self.published_bits_per_second or self.crossed_bits_per_second is None:
            return None
        return self.crossed_bits_per_second / self.published_bits_per_second

    @property
    def newest_captured(self) -> datetime.datetime | None:
        """When the newest frame at the edge was captured: a `datetime` in UTC. `None` if there is none."""
        return _moment(self.newest_captured_ns)

    @property
    def oldest_captured(self) -> datetime.datetime | None:
        """When the oldest frame at the edge was captured: a `datetime` in UTC. `None` if there is none.

        `mez.read` can go back to this time without asking the camera.
        """
        return _moment(self.oldest_captured_ns)


class Edge(InProcessEdge):
    """An edge broker inside this process. Also a context manager, which closes it.

    `mez.edge` creates it. Give it as `edge=` to `mez.publisher`, `mez.subscribe`, `mez.read` and
    `mez.cameras`. Other processes connect with `address` (to publish), `socket` or `grpc_address` (to
    subscribe), and `keys`.
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
    """Start an edge broker inside this process: for a notebook, a test, or a program with its own edge.

    By default only this host can reach it: it listens on free ports of 127.0.0.1, and makes temporary keys.
    For other hosts, run `mez edge` as a separate process.

    Args:
        keys: The folder of keys of a site. Default: a new site in a temporary folder, which is deleted when
            the edge is closed.
        name: The name of the edge within the site. Default: the edge identity in the folder of keys; if there
            is none, the host's name.
        listen: Address and port for cameras (UDP). Port 0 means any free port.
        grpc: Address and port for applications on other hosts (gRPC over TLS). `None`: none.
        web: Address and port of the page with its data, of health and of metrics (HTTPS), such as
            `"127.0.0.1:0"`. `edge.web_address` says which port it is. `mez edge open --edge unix://SOCKET`
            prints a link that signs a browser in; SOCKET is `edge.socket`. Default: none.
        socket: The path of the Unix socket for applications on this host. Default: a path in a temporary
            folder.
        memory_bytes: Memory for the frames of all cameras together, in bytes. If it is full, the oldest
            frames are dropped.
        cameras_max: The maximum number of cameras. Further cameras are refused.
        forget_after: An absent camera is forgotten after this many seconds, unless frames of it are on disk
            or a subscription names it. `None`: never.
        frame_bytes_max: Maximum size of a frame, in bytes.
        state: The folder for state that the edge needs at its next start. Default: `MEZ_STATE`; if it is not
            set, `/var/lib/mez` for root, `~/.local/state/mez` for other users. Without `state`, `keys` and
            `store`: a temporary folder, so the edge keeps nothing after its end.
        store: The folder of a store. Frames are also written there, encrypted, and survive the end of this
            process. Default: frames are only in memory.
        store_key: The file with the store's keys, which `mez store key` makes. Default: the keys in the
            variable `MEZ_STORE_KEY` itself; if it is not set, the systemd credential `mez-store-key`;
            otherwise the file `store.key` in the folder of keys.
        store_bytes: Disk space for each camera, in bytes. If it is full, the oldest frames are dropped.
        store_age: Maximum age of frames on disk, in seconds. Default: frames stay until their space is
            needed.
        durability: How much a power cut may lose: `"async"`: half a minute; `"group"`: one second; `"sync"`:
            a fifth of a second.
        notes: Whether the store also keeps notes: replies of applications, and states of contracts and
            sources (`mez.notes`, `mez store export`). They use at most a sixteenth of `store_bytes`. Without
            `store`, no notes are kept.
        profiles: The folder with profiles that subscriptions can use by name. Default: `profiles` in the
            folder for state.
        channels: Channels that several cameras share, such as radio cells: a dict from the channel's name to
            one or several patterns of cameras. Ten times a second, the edge divides the channel among the
            cameras that have subscribers, and sends each camera its largest mean frame size. By default, it
            maximises the accuracy of the worst camera. With the name `"NAME:sum"` it maximises the sum of
            accuracies; with `"NAME:bandwidth"` all cameras get the same bandwidth. A camera in several
            channels belongs to the first one. `CameraInfo` shows the shares. Default: no channels.
        rights: Who may do what: for each application (`app/counter`; `app/**` for all applications) a dict
            from verbs to one or several patterns of cameras (docs/rights.md). Everything else is refused. The
            rights do not change while the edge runs. On the Unix socket, the user that this process runs as
            may do everything. This is also the case with `edge=` this object, and with `edge.subscribe`. To
            test refusals, connect as an application: `edge.grpc_address` with `edge.keys`. Default:
            `rights.toml` in the folder of keys. With temporary keys, every application that has the keys may
            do everything except reset cameras.

    Raises:
        ArgumentError, ArgumentTypeError: An argument has an invalid value or type; `field` names the
            argument.
        KeysError: The keys cannot be used.
        ListenError: A port or the socket is in use, or the address is not of this host.

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
    # Not a TemporaryDirectory: a forked child would delete its parent's folder when it ends.
    path = arguments.optional_path("socket", socket)
    folder = Path(tempfile.mkdtemp(prefix="mez-")) if temporary_keys or path is None else None
    known = arguments.optional_path("state", state)
    if known is None and temporary_keys and store is None:
        # Otherwise its cameras would be mixed with those of the host's own edge.
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
    """List the cameras and derived streams that an edge knows, by name, connected or not.

    Args:
        pattern: Only names that match this pattern, such as `dock/*`. Default: all.
        edge: As in `mez.subscribe`.
        keys: As in `mez.subscribe`.
        connect_timeout: As in `mez.subscribe`.

    Raises:
        ArgumentError, KeysError, ConnectError: As in `mez.subscribe`.
        PermissionDenied: No grant (`observe`) allows this program to see these cameras.

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
            f"the edge knows no camera {pattern!r}; if {pattern!r} is a host, write "
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
    """Make an edge forget an absent camera: it is no longer listed.

    Contracts no longer report it as absent, and subscriptions continue without it. If it connects again, it
    counts as a new camera. This works only on the edge's host, through its Unix socket.

    Args:
        camera: The camera's name.
        edge: As in `mez.subscribe`.
        keys: As in `mez.subscribe`.
        connect_timeout: As in `mez.subscribe`.

    Returns:
        The folder on the edge's host to which the camera's log was moved. `None` if there was no log on disk.

    Raises:
        NotFoundError: The edge knows no such camera.
        BrokerError: The camera is connected (`reason` is `CAMERA_CONNECTED`), or the edge is on another host.
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
