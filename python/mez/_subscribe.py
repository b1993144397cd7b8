"""Opens subscriptions, and reads frames of the past."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from mez import _arguments as arguments
from mez import _native
from mez._frame import Frame
from mez._subscription import Event, Subscription, Terms
from mez.errors import NotFoundError

if TYPE_CHECKING:
    from mez._edge import Edge


def subscribe(
    pattern: str,
    *,
    edge: "str | Edge | Sequence[str | Edge] | None" = None,
    latency_ms: float | None = None,
    accuracy: float | None = None,
    on_time_share: float = 0.98,
    profile: arguments.StrPath | Mapping[str, object] | None = None,
    min_fps: float = 0.0,
    on_infeasible: Literal["degrade", "skip", "stop"] = "degrade",
    deliver: Literal["newest", "every"] | None = None,
    resume: Literal["newest", "fill"] = "newest",
    after: Mapping[str, Frame | Sequence[int]] | None = None,
    begin: arguments.Time | None = None,
    end: arguments.Time | None = None,
    since: arguments.Time | None = None,
    until: arguments.Time | None = None,
    accept: Sequence[str] = (),
    priority: int = 0,
    application: str | None = None,
    keys: arguments.StrPath | None = None,
    reconnect: bool = True,
    timeout: float | None = None,
    connect_timeout: float | None = 5.0,
    on_event: Callable[[Event], object] | None = None,
) -> Subscription:
    """Subscribe to the frames of all cameras that match a pattern, now and later.

    A camera that does not exist (yet) is no error: the subscription waits for it, and says so (`waiting`,
    `on_event`, and a warning of the log `mez`).

    Times are aware datetimes, timedeltas from now, texts such as `"-10m"`, `"now"` or
    `"2026-11-20T21:38:46Z"`, or nanoseconds since 1970-01-01 UTC. They are compared with capture times,
    which are the cameras'.

    Args:
        pattern: A camera's name in which a segment may be `*` (any one) or `**` (any number): `dock/*`.
        edge: The edge broker: `"HOST"` or `"HOST:PORT"` (TCP, 7651 by default), `"unix:///PATH"`, or a
            `mez.edge()` of this process. Or up to eight of them, of one site, in order of preference: while
            one is gone, or has none of the cameras connected and another one has, frames come from that one.
            Else `MEZ_EDGE` (several with commas between them), else the edge broker of this host.
        latency_ms: The most milliseconds from capture until the edge hands the frame on. Default: as soon as
            possible.
        accuracy: The least accuracy that you accept, in 0..1. Default: frames go unmodified.
        on_time_share: The share of frames that must be on time, above 0 and at most 1.
        profile: What each way to make frames cheaper costs and keeps for your detector, as `mez profile run`
            finds out; without one nobody knows whether a floor is kept (`"unverified"`): the path of a
            profile (anything that ends in `.json` or holds a `/`), its content, or the name of one at the
            edge.
        min_fps: The lowest frame rate that is of use, in frames per second.
        on_infeasible: When the bounds cannot both be held: `"degrade"` sends the best that fits, marked;
            `"skip"` sends nothing until they can; `"stop"` ends the subscription with an `InfeasibleError`.
        deliver: `"newest"`: when you are ready, the newest of each camera, and the others are counted as
            skipped; `"every"`: all that crossed the link, in order. Default: `"every"` where `begin` lies
            in the past, else `"newest"`.
        resume: What becomes of frames that you did not get when they were new: because newer ones won, the
            link was down, or the edge, the camera or your own program was restarted. `"newest"`: they are
            counted in `skipped`, or told in `not_held`. `"fill"`: they are fetched from the edge's disk and
            the camera's log, and come before the frames behind them: every frame that the camera still has,
            in order, exactly once. That means `deliver="every"`, stills, and frames that may be old.
        after: The last frame that you have of each camera, when your program was restarted: frames,
            `(epoch, sequence)` or `(epoch, sequence, captured_ns)`, by camera, as `Subscription.last` has
            them. What was published since comes, with `resume="fill"`, or is counted.
        begin: The first capture time wanted. Default: what is published from now on. Does not count for
            cameras of `after`.
        end: The last capture time wanted. Default: none.
        since: Another name for `begin`.
        until: Another name for `end`.
        accept: The encodings that may come. `["h264", "jpeg"]`, for an edge that is reached over a network:
            video comes as it left the camera, in a tenth of the bytes or less, and is decoded here, in Rust,
            whole chains of it, of which you get the newest picture (`frame.encoding` is `"bgr8"`, `rung` says
            what the camera did). Stills come until a chain begins, and where you are too slow for it;
            so a list of nothing but `"h264"` and `"tiles"` is refused. `["jpeg"]`, for programs that decode
            `payload` by themselves: of frames in other encodings the edge makes JPEG of quality 95.
            Default: stills in every encoding, which `image` decodes; the edge makes them of video.
        priority: Higher goes first where contracts conflict.
        application: Your name, for people; at most 128 bytes.
        keys: The folder of keys, for an edge on another host. Else `MEZ_KEYS`, else `~/.config/mez/keys`.
        reconnect: Whether to dial until it is back when the edge is lost. Otherwise that is a `ConnectError`.
        timeout: The longest wait for a frame, in seconds; then `WaitTimeoutError`. `None`: for ever.
        connect_timeout: How long to go on dialling an edge that is not there at the start; then
            `ConnectError`. `None`: for ever.
        on_event: Called with every `Event`, by whoever reads the subscription.

    Raises:
        ArgumentError: An argument makes no sense; `field` names it.
        KeysError: There are no keys, none for an application, or they have expired.
        ConnectError: The edge was not there.
        BusyError: The edge has as many subscriptions as it allows.

    Example:
        ```python
        import mez
        for frame in mez.subscribe("dock/*", latency_ms=100, accuracy=0.95, profile="people.json"):
            boxes = detect(frame.image)
            frame.reply(boxes)
        ```
    """
    begin_field, begin = arguments.either("begin", begin, "since", since)
    end_field, end = arguments.either("end", end, "until", until)
    if isinstance(begin, str) and begin == "now":
        # By the time the edge reads it, it would be the past, which is delivered whole.
        begin = None
    terms = Terms(latency_ms, accuracy, on_time_share, profile, min_fps, on_infeasible, priority)
    checked = terms.checked()
    client = connect(edge, keys=keys, application=application, connect_timeout=connect_timeout)
    native = client.subscribe(
        arguments.text("pattern", pattern),
        begin_ns=arguments.optional_utc_ns(begin_field, begin),
        end_ns=arguments.optional_utc_ns(end_field, end),
        deliver=arguments.optional_text("deliver", deliver),
        accept=arguments.texts("accept", accept),
        reconnect=bool(reconnect),
        quality=None,
        held_only=False,
        resume=arguments.text("resume", resume),
        after=arguments.last_frames("after", after),
        **checked,
    )
    return Subscription(
        native,
        client,
        pattern=pattern,
        timeout=arguments.timeout("timeout", timeout),
        on_event=on_event,
        terms=terms,
    )


def read(
    camera: str,
    *,
    since: arguments.Time | None = None,
    until: arguments.Time | None = None,
    quality: str | None = None,
    held_only: bool = False,
    edge: "str | Edge | Sequence[str | Edge] | None" = None,
    keys: arguments.StrPath | None = None,
    timeout: float | None = None,
    connect_timeout: float | None = 5.0,
) -> Subscription:
    """Read the past of a camera, every frame in order.

    It comes from the edge's memory and disk, and what never crossed the link is fetched from the camera's own
    log, behind live frames. What nobody holds any more is told by the `not_held` and `skipped` of the frame
    after it.

    The edge holds frames as they crossed, which for applications with an accuracy floor may be less than what
    was published; `frame.rung` says. `quality="original"` fetches what was published in their place.

    Args:
        camera: The camera's name, or a pattern; then cameras take turns.
        since: The first capture time wanted, as in `subscribe`. Default: from the oldest frame held.
        until: The last capture time wanted; a time to come counts as now. Default: up to now.
        quality: The rung at which frames are wanted, one for which a frame needs no other: `"original"`,
            `"jpeg/w640/q70/420"`, … A frame that the edge holds as anything else but this or the original is
            made anew at its camera, and comes as the edge holds it only where the camera has it no more.
            Default: as the edge holds them, and originals of what it does not.
        held_only: Leave the camera alone: only what the edge holds comes.
        edge: As in `subscribe`.
        keys: As in `subscribe`.
        timeout: As in `subscribe`.
        connect_timeout: As in `subscribe`.

    Raises:
        NotFoundError: The edge knows no such camera.
        ArgumentError, KeysError, ConnectError, BusyError: As in `subscribe`.

    Example:
        ```python
        for frame in mez.read("dock/cam1", since="-10m", until="-5m"):
            print(frame.captured, frame.image.mean())
        ```
    """
    begin_ns = 0 if since is None else arguments.utc_ns("since", since)
    end_ns = None if until is None else arguments.utc_ns("until", until)
    client = connect(edge, keys=keys, application=None, connect_timeout=connect_timeout)
    known = client.cameras(arguments.text("camera", camera))
    if not known:
        names = ", ".join(record.camera for record in client.cameras()) or "none at all"
        raise NotFoundError(f"the edge knows no camera {camera}; it knows {names}")
    # The past ends now, or with the newest frame of a camera whose clock is ahead of ours.
    now_ns = max((record.newest[2] for record in known if record.newest is not None), default=0)
    now_ns = max(now_ns, time.time_ns())
    # An end before the beginning goes as it is: the edge refuses it.
    if end_ns is None or end_ns >= begin_ns:
        end_ns = max(begin_ns, now_ns if end_ns is None else min(end_ns, now_ns))
    native = client.subscribe(
        camera,
        begin_ns=begin_ns,
        end_ns=end_ns,
        deliver="every",
        accept=(),
        reconnect=True,
        quality=arguments.optional_text("quality", quality),
        held_only=bool(held_only),
        resume="newest",
        after=(),
        **Terms().checked(),
    )
    return Subscription(
        native,
        client,
        pattern=camera,
        timeout=arguments.timeout("timeout", timeout),
        everything=since is None,
    )


def connect(
    edge: "str | Edge | Sequence[str | Edge] | None",
    *,
    keys: arguments.StrPath | None,
    application: str | None = None,
    connect_timeout: float | None = 5.0,
) -> _native.Client:
    """A connection to an edge broker."""
    # Here, because the edge's module needs this one.
    from mez._edge import Edge

    return _native.Client(
        [
            f"unix://{each._open().socket}" if isinstance(each, Edge) else arguments.text("edge", each)
            for each in arguments.edges(edge)
        ],
        keys=arguments.optional_path("keys", keys),
        application=arguments.optional_text("application", application),
        patience=arguments.timeout("connect_timeout", connect_timeout),
    )
