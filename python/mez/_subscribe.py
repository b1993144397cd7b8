"""Opens subscriptions, and reads frames of the past."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mez import _arguments as arguments
from mez import _group as groups
from mez import _native
from mez._frame import Frame
from mez._in_process import InProcessEdge
from mez._subscription import Event, Subscription
from mez._terms import Terms
from mez.errors import NotFoundError

if TYPE_CHECKING:
    from mez._frame_spans import FrameTraces


def subscribe(
    pattern: str,
    *,
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None = None,
    latency_ms: float | None = None,
    accuracy: float | None = None,
    on_time_share: float = 0.98,
    profile: arguments.StrPath | Mapping[str, object] | None = None,
    min_fps: float = 0.0,
    on_infeasible: Literal["degrade", "skip", "stop"] = "degrade",
    deliver: Literal["newest", "every"] | None = None,
    quality: str | None = None,
    resume: Literal["newest", "fill"] = "newest",
    after: Mapping[str, Frame | Sequence[int]] | None = None,
    since: arguments.Time | None = None,
    until: arguments.Time | None = None,
    accept: Sequence[str] | None = None,
    size: Literal["sent", "published"] = "sent",
    for_export: bool = False,
    priority: int = 0,
    group: str | None = None,
    ordered: Literal["camera"] | None = None,
    again_after: float | None = None,
    tries: int | None = None,
    open_max: int | None = None,
    at_once: int = 1,
    application: str | None = None,
    keys: arguments.StrPath | None = None,
    reconnect: bool = True,
    timeout: float | None = None,
    connect_timeout: float | None = 5.0,
    on_event: Callable[[Event], object] | None = None,
    traces: str | None = None,
    traced: float = 0.01,
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
            Else `MEZ_EDGE` (several with commas between them), else those of `~/.config/mez/app.toml`,
            else the edge broker of this host. If none runs here, and this host is no edge's and has keys, the
            edge of its site that answers on the local network (`mez edge --announce`).
        latency_ms: The most milliseconds from capture until your loop gets the frame. Default: as soon as
            possible.
        accuracy: The accuracy floor: the lowest accuracy that you accept, 0 to 1. Default: you take frames
            as the contracts of others need them, and as they were published where there are none. For
            originals beside the contracts of others: `quality="original"`.
        on_time_share: The share of frames that must be on time, above 0 and at most 1.
        profile: The profile of your detector, which `mez profile run` measures: its path (anything that ends
            in `.json` or holds a `/`), its content, or the name of one at the edge. Every edge has
            `"pedestrian-hog-vtest"`, of the demo's detector and video. Without a profile nobody knows whether
            the floor is kept (`"unverified"`).
        min_fps: The lowest useful frame rate, in frames per second.
        on_infeasible: What to do while no rung keeps both bounds. `"degrade"` sends the best that fits,
            marked; `"skip"` sends nothing; `"stop"` ends the subscription with an `InfeasibleError`.
        deliver: `"newest"`: whenever you are ready, you get the newest frame of each camera, and the others
            are counted as skipped. `"every"`: you get all frames that crossed the link, in order. Default:
            `"every"` if `since` lies in the past, else `"newest"`.
        quality: `"original"`: you get originals, whatever rung the contracts on the camera have. Where frames
            cross the link smaller, the original of the newest frame is fetched behind them, in what the
            contracts leave of the link. The others are counted (`"link_busy"`); `frame.contract` and events
            say how many come, and why not more. `latency_ms` is judged as ever; a floor (`accuracy`) is
            refused. Default: frames at the rung that the contracts have. Other rungs are for frames of the
            past, as in `read`.
        resume: What to do about frames that you missed because newer ones came, the link was down, or the
            edge, the camera or your own program was restarted. `"newest"`: they are counted in `skipped`, or
            reported in `not_held`. `"fill"`: they are fetched from the edge's disk and the camera's log, so
            that every frame that the camera still has comes, in order and exactly once. `"fill"` implies
            `deliver="every"`, stills, and frames that may be old.
        after: The last frame of each camera that your program had before it was restarted: by camera, a
            frame, `(epoch, sequence)` or `(epoch, sequence, captured_ns)`, as in `Subscription.last`. What
            was published since then is fetched with `resume="fill"`, else counted.
        since: The first capture time that is wanted. Default: frames that are published from now on. It does
            not apply to cameras in `after`.
        until: The last capture time that is wanted. Default: none.
        accept: The encodings that may come. Default: all but `"h265"` and `"av1"`. Video then comes as it
            crossed the link, with a tenth of the bytes of stills or less, and is decoded in this process, in
            Rust: every frame of it, of which you get the newest (`frame.encoding` says how it came, `rung`
            what the camera did). Pixels are made of those at which you look. Stills come until a chain
            begins, and while you are too slow for one, so a list of nothing but video is refused. `"h265"`
            and `"av1"`, of cameras whose sources give them, are decoded by a process of ffmpeg on this host,
            and refused where that does not work; if you do not list them, the edge makes stills of them.
            `[]`: stills in every encoding; the edge turns video into JPEG of quality 95. `["jpeg"]`, for
            programs that decode `payload` themselves: the edge turns all other encodings into that. The past
            comes as stills.
        size: The size of `frame.image`, in whose pixels you give boxes to `frame.reply`. `"sent"`: that of
            the frame as it came, which may be smaller than it was published. `"published"`: the image is
            scaled to the size of the frame as it was published, the same at every rung.
        for_export: Say that you write the frames into files (`frame.save`, a recording). This needs a grant
            of `export` beside the others, and the edge's audit log records an export.
        priority: The priority of the contract. Higher ones are kept first if not all can be.
        group: Share the frames with all programs of your identity that give the same name: each frame goes
            to one of them that is free (docs/groups.md). With `deliver="newest"`, which is the default, you
            get the newest frame of a camera, once. With `deliver="every"` every frame is given until one of
            you has done its work: it is given again when a program dies, fails or says nothing in time.
            All ask for the same cameras, contract and options. A loop that asks for the next frame has done
            the one before; `frame.failed` says that it has not.
        ordered: `"camera"`: the frames of a camera are worked on one after the other, in order.
        again_after: Seconds that a program may work on a frame before it is given to another. Default: 30.
            Take longer than your work takes.
        tries: How often a frame is given before it becomes a dead letter (`mez groups`). Default: 5.
        open_max: The most frames that are given and not done, of all programs together. Default: 1000.
        at_once: How many frames your program works on at once. With more than 1, say `frame.done()` of each.
        application: The application's name, for people; at most 128 bytes.
        keys: The folder of keys, for an edge on another host. Default: `MEZ_KEYS`, else
            that of `~/.config/mez/app.toml`, else `~/.config/mez/keys`.
        reconnect: Whether to keep dialling when the edge is lost. If false, the loss is a `ConnectError`.
        timeout: The longest wait for a frame, in seconds; then `WaitTimeoutError`. `None`: for ever.
        connect_timeout: How long to keep dialling at the start if the edge does not answer; then
            `ConnectError`. `None`: for ever.
        on_event: Called with every `Event`, by the thread or task that reads the subscription.
        traces: The address of a receiver of OTLP over HTTP, such as `"http://localhost:4318"`. It gets spans
            of OpenTelemetry for a sample of the frames: when each passed each stage, and how long your
            program worked on it (docs/monitoring.md). Default: none.
        traced: The share of frames that are traced, above 0 and at most 1. Programs with the same share
            choose the same frames; a larger share includes those of a smaller one.

    Raises:
        ArgumentError: An argument has a bad value; `field` names it.
        KeysError: There are no keys, none for an application, or they have expired.
        ConnectError: The edge did not answer.
        PermissionDenied: No grant lets this program have these cameras, or this program was revoked. The
            sentence names the missing grant and the command that gives it. A subscription that loses its
            grant raises it from its next frame.
        BusyError: The edge has as many subscriptions as it allows.

    Example:
        ```python
        import mez
        for frame in mez.subscribe("dock/*", latency_ms=100, accuracy=0.95, profile="yard.json"):
            boxes = detect(frame.image)
            frame.reply(boxes)
        ```
    """
    if isinstance(since, str) and since == "now":
        # By the time the edge reads it, it would be the past, which is delivered whole.
        since = None
    terms = Terms(latency_ms, accuracy, on_time_share, profile, min_fps, on_infeasible, priority)
    checked = terms.checked()
    asked = groups.asked(
        group,
        ordered=ordered,
        again_after=again_after,
        tries=tries,
        open_max=open_max,
        at_once=at_once,
    )
    followed = None if traces is None else _traces(traces, traced, application)
    client = connect(edge, keys=keys, application=application, connect_timeout=connect_timeout)
    native = client.subscribe(
        arguments.text("pattern", pattern),
        since_ns=arguments.optional_utc_ns("since", since),
        until_ns=arguments.optional_utc_ns("until", until),
        deliver=arguments.optional_text("deliver", deliver),
        accept=None if accept is None else arguments.texts("accept", accept),
        reconnect=bool(reconnect),
        quality=arguments.optional_text("quality", quality),
        held_only=False,
        for_export=bool(for_export),
        resume=arguments.text("resume", resume),
        after=arguments.last_frames("after", after),
        group=asked,
        **checked,
    )
    return Subscription(
        native,
        client,
        pattern=pattern,
        group=group,
        settles_itself=asked is not None and at_once == 1,
        timeout=arguments.timeout("timeout", timeout),
        on_event=on_event,
        terms=terms,
        size=arguments.image_size(size),
        traces=followed,
    )


def _traces(endpoint: object, share: object, application: str | None) -> "FrameTraces":
    # Here, so that a program that sends no spans does not load what sends them.
    from mez._frame_spans import FrameTraces

    name = application or Path(sys.argv[0]).stem or "application"
    return FrameTraces(arguments.text("traces", endpoint), arguments.number("traced", share), name)


def read(
    camera: str,
    *,
    since: arguments.Time | None = None,
    until: arguments.Time | None = None,
    quality: str | None = None,
    held_only: bool = False,
    size: Literal["sent", "published"] = "sent",
    for_export: bool = False,
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None = None,
    keys: arguments.StrPath | None = None,
    timeout: float | None = None,
    connect_timeout: float | None = 5.0,
) -> Subscription:
    """Read the past of a camera, every frame in order.

    Frames come from the edge's memory and disk. Frames that never crossed the link are fetched from the
    camera's own log, behind live frames. If nobody holds a frame any more, `skipped` or `not_held` of the
    next frame say so. Where the camera itself gave no frames, `mez.notes` says since when and why.

    The edge holds frames as they crossed the link, perhaps compressed for applications with an accuracy
    floor; `frame.rung` says how. Their sizes may then differ from frame to frame, which a warning of the
    logger `mez` says once. `quality="original"` fetches the originals instead.

    Args:
        camera: The camera's name, or a pattern; then cameras take turns.
        since: The first capture time that is wanted, as in `subscribe`. Default: the oldest frame that is
            held.
        until: The last capture time that is wanted. A time in the future counts as now. Default: now.
        quality: The rung at which frames are wanted: `"original"`, `"jpeg/w640/q70/420"`, or another that
            makes stills. If the edge holds a frame neither at this rung nor as the original, the camera
            encodes it again; if the camera no longer has it, it comes as the edge holds it. Default: as the
            edge holds frames, and originals of those that it does not hold.
        held_only: Deliver only frames that the edge holds, without asking the camera.
        size: As in `subscribe`.
        for_export: As in `subscribe`.
        edge: As in `subscribe`.
        keys: As in `subscribe`.
        timeout: As in `subscribe`.
        connect_timeout: As in `subscribe`.

    Raises:
        NotFoundError: The edge knows no such camera.
        PermissionDenied: No grant lets this program read the camera, have its originals fetched, or write
            its frames into files.
        ArgumentError, KeysError, ConnectError, BusyError: As in `subscribe`.

    Example:
        ```python
        for frame in mez.read("dock/cam1", since="-10m", until="-5m"):
            print(frame.captured, frame.image.mean())
        ```
    """
    since_ns = 0 if since is None else arguments.utc_ns("since", since)
    until_ns = None if until is None else arguments.utc_ns("until", until)
    client = connect(edge, keys=keys, application=None, connect_timeout=connect_timeout)
    # Who may read need not see lists. The edge then says what is wrong with the reading itself.
    known = client.observable(arguments.text("camera", camera))
    if known is not None and not known:
        names = ", ".join(record.camera for record in client.observable("**") or ()) or "none at all"
        raise NotFoundError(f"the edge knows no camera {camera}; it knows {names}")
    # The past ends now, or with the newest frame of a camera whose clock is ahead of ours.
    now_ns = max((record.newest[2] for record in known or () if record.newest is not None), default=0)
    now_ns = max(now_ns, time.time_ns())
    # An end before the beginning goes as it is: the edge refuses it.
    if until_ns is None or until_ns >= since_ns:
        until_ns = max(since_ns, now_ns if until_ns is None else min(until_ns, now_ns))
    native = client.subscribe(
        camera,
        since_ns=since_ns,
        until_ns=until_ns,
        deliver="every",
        accept=None,
        reconnect=True,
        quality=arguments.optional_text("quality", quality),
        held_only=bool(held_only),
        for_export=bool(for_export),
        resume="newest",
        after=(),
        group=None,
        **Terms().checked(),
    )
    return Subscription(
        native,
        client,
        pattern=camera,
        timeout=arguments.timeout("timeout", timeout),
        past=True,
        everything=since is None,
        size=arguments.image_size(size),
    )


def connect(
    edge: str | InProcessEdge | Sequence[str | InProcessEdge] | None,
    *,
    keys: arguments.StrPath | None,
    application: str | None = None,
    connect_timeout: float | None = 5.0,
) -> _native.Client:
    """A connection to an edge broker."""
    return _native.Client(
        [
            f"unix://{each._open().socket}"
            if isinstance(each, InProcessEdge)
            else arguments.text("edge", each)
            for each in arguments.edges(edge)
        ],
        keys=arguments.optional_path("keys", keys),
        application=arguments.optional_text("application", application),
        patience=arguments.timeout("connect_timeout", connect_timeout),
    )
