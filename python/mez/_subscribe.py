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
    fresh: bool = False,
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
    """Subscribe to the frames of all cameras that match a pattern, including cameras that connect later.

    If no matching camera exists yet, this is not an error: the subscription waits for one.
    `Subscription.waiting`, an event, and a warning of the logger `mez` say so.

    `since` and `until` accept a `datetime` with a time zone, a `timedelta` from now, a text such as `"-10m"`,
    `"now"` or `"2026-11-20T21:38:46Z"`, or nanoseconds since 1970-01-01 UTC. They are compared with capture
    times, which come from the cameras' clocks.

    Args:
        pattern: The name of a camera, such as `dock/cam1`. A segment may be `*` (any one segment) or `**`
            (any number of segments): `dock/*`.
        edge: The edge: `"HOST"` or `"HOST:PORT"` (TCP, default port 7651), `"unix:///PATH"`, or a
            `mez.edge()` of this process. Or a list of up to eight edges of one site, in order of preference.
            Frames come from the first edge that answers. If none of the cameras is connected to it, but one
            is connected to another edge, they come from that one. Default: `MEZ_EDGE` (several edges with
            commas between them); if it is not set, the edges of `~/.config/mez/app.toml`; otherwise the edge
            of this host. If no edge runs here, this host is not an edge's host, and it has keys: the edge of
            its site that answers on the local network (`mez edge --announce`).
        latency_ms: The latency bound: the maximum time from capture until your loop gets the frame, in
            milliseconds. Default: no bound, frames come as soon as possible.
        accuracy: The accuracy floor: the lowest accuracy that you accept, 0 to 1. Default: no floor. Then you
            get frames at the rung that other contracts on the camera need, or originals if there are none. To
            always get originals, use `quality="original"`.
        on_time_share: The share of frames that must be on time, above 0 and at most 1.
        profile: The profile of your detector, which `mez profile run` measures: a path (a text that ends in
            `.json` or contains `/`), the content as a dict, or the name of a profile at the edge. Every edge
            has `"pedestrian-hog-vtest"`, for the detector and the video of the demo. Without a profile, Mez
            cannot know the accuracy, and the state of the contract is `"unverified"`.
        min_fps: The lowest frame rate that is useful to you, in frames per second.
        on_infeasible: What Mez does while no rung keeps both bounds. `"degrade"`: send the best frames that
            fit, marked with `frame.infeasible`. `"skip"`: send nothing. `"stop"`: end the subscription with
            an `InfeasibleError`.
        deliver: `"newest"`: when your loop asks for a frame, it gets the newest one of a camera; older frames
            are counted as skipped. `"every"`: your loop gets all frames that crossed the link, in order.
            Default: `"every"` if `since` is in the past, else `"newest"`.
        quality: `"original"`: you get only originals, whatever rung the contracts on the camera have. If
            frames cross the link at a smaller rung, the edge also fetches the original of the newest frame,
            in the part of the link that the contracts leave. Originals that were not sent count as
            `"link_busy"`; `frame.contract` and events say how many come, and why. `latency_ms` is judged as
            usual; `accuracy` is refused. Default: frames at the rung of the contracts. Other rungs are only
            for frames of the past, see `read`.
        resume: What happens to frames that you missed, because newer ones came, the link was down, or the
            edge, the camera or your program was restarted. `"newest"`: they are counted in `skipped` or
            reported in `not_held`. `"fill"`: they are fetched from the edge's disk and the camera's log, so
            that every frame that the camera still has comes, in order and exactly once. `"fill"` implies
            `deliver="every"`. Frames are then still images, and may be old.
        after: To continue after a restart of your program: the last frame of each camera that it had, by the
            camera's name. A frame is given as a `Frame`, `(epoch, sequence)` or `(epoch, sequence,
            captured_ns)`, as in `Subscription.last`. Frames that were published since then are fetched with
            `resume="fill"`, otherwise counted.
        since: The first capture time that you want. Default: frames that are published from now on. It does
            not apply to cameras in `after`.
        until: The last capture time that you want. Default: no end.
        accept: The encodings that may come. Default: all except `"h265"` and `"av1"`. Then video comes as it
            crossed the link, with a tenth of the bytes of still images or less. It is decoded in this
            process, in Rust. Every video frame is decoded; you get the newest one. `frame.encoding` says how
            it came, and `rung` how the camera encoded it. It is converted to pixels only if you use
            `frame.image`. Still images come until the video's next keyframe, and while your loop is too slow
            for video; so a list of only video encodings is refused. `"h265"` and `"av1"` come only from
            cameras whose source gives them, and need ffmpeg on this host; if ffmpeg does not work, they are
            refused. If they are not in the list, the edge converts them to still images. `[]`: only still
            images, in any encoding; the edge converts video to JPEG of quality 95. `["jpeg"]`: everything
            comes as JPEG, for programs that decode `payload` themselves. Frames of the past are always still
            images.
        size: The size of `frame.image`. `"sent"`: as the frame came, which may be smaller than it was
            published. `"published"`: the image is scaled to the size of the published frame, the same at
            every rung. Boxes for `frame.reply` are in the pixels of `frame.image`.
        for_export: Declare that you write the frames into files (`frame.save`, a recording). This needs the
            grant `export` in addition to the others. The edge records the export in its audit log.
        priority: The priority of the contract. If a camera cannot keep all contracts, it keeps those of
            higher priority first.
        group: The name of a group. All programs of your identity with the same name share the frames: each
            frame goes to one of them that is free (docs/groups.md). With `deliver="newest"` (the default),
            this is the newest frame of a camera, and it is given once. With `deliver="every"`, every frame is
            given; if its program dies, fails or does not report in time, the frame is given again. All
            members must use the same cameras, contract and options. When your loop asks for the next frame,
            the previous one counts as done; if its work failed, call `frame.failed`.
        ordered: `"camera"`: the frames of a camera are processed in order, one after the other. Only with
            `group`, like the next five arguments. Default: no order.
        fresh: For programs that are slower than the camera. When your loop asks for a frame, the newest one
            may already be old. If the next one should come sooner than the newest one is old, your loop waits
            for it. So your results are of fresher frames, and you get fewer of them: at most a quarter fewer
            if frames come regularly. Nobody waits while another camera has a frame (docs/groups.md). Not with
            `deliver="every"`. Default: your loop gets the newest frame at once.
        again_after: With `deliver="every"`: seconds that a program may work on a frame before it is given to
            another one. Default: 30. Set it to more than your work takes.
        tries: With `deliver="every"`: how often a frame is given before it becomes a dead letter (`mez
            groups`). Default: 5.
        open_max: The maximum number of frames that are given and not settled, in all programs together.
            Default: 1000.
        at_once: How many frames your program works on at the same time. If it is above 1, call `frame.done()`
            or `frame.failed(error)` for each frame.
        application: The application's name, for people; at most 128 bytes. It is not the identity.
        keys: The folder of keys, for an edge on another host. Default: `MEZ_KEYS`; if it is not set, the one
            in `~/.config/mez/app.toml`; otherwise `~/.config/mez/keys`.
        reconnect: Whether to connect again if the connection to the edge is lost. If false, `ConnectError` is
            raised then.
        timeout: The longest wait for a frame, in seconds. After it, `WaitTimeoutError` is raised. `None`:
            wait without a limit.
        connect_timeout: How long to try to connect at the start, in seconds. After it, `ConnectError` is
            raised. `None`: try without a limit.
        on_event: A function that is called with every `Event`, in the thread or task that reads the
            subscription.
        traces: The address of a receiver of OTLP over HTTP, such as `"http://localhost:4318"`. For a sample
            of the frames, it gets OpenTelemetry spans: when the frame passed each stage, and how long your
            program worked on it (docs/monitoring.md). Default: no spans.
        traced: The share of frames in this sample, above 0 and at most 1. Programs with the same share choose
            the same frames. A larger share includes the frames of a smaller one.

    Raises:
        ArgumentError: An argument has an invalid value; `field` names the argument.
        KeysError: There are no keys, or they have expired, or none of them is for an application.
        ConnectError: No edge answered within `connect_timeout`.
        PermissionDenied: No grant allows this program to get these cameras, or its keys were revoked. The
            message names the missing grant and the command that gives it. If a grant is withdrawn later, the
            next frame raises this error.
        BusyError: The edge has the maximum number of subscriptions.

    Example:
        ```python
        import mez
        for frame in mez.subscribe("dock/*", latency_ms=100, accuracy=0.95, profile="yard.json"):
            boxes = detect(frame.image)
            frame.reply(boxes)
        ```
    """
    if isinstance(since, str) and since == "now":
        # When the edge gets this time, it is in the past; then every frame since then would be delivered.
        since = None
    terms = Terms(latency_ms, accuracy, on_time_share, profile, min_fps, on_infeasible, priority)
    checked = terms.checked()
    asked = groups.asked(
        group,
        ordered=ordered,
        fresh=fresh,
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
    # Imported here, so that a program without spans does not load the exporter.
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
    """Read frames of the past, every frame in order.

    Frames come from the edge's memory and disk. Frames that the edge does not have are fetched from the
    camera's own log; live frames have priority over them. If a frame is held nowhere any more, `skipped` or
    `not_held` of the next frame says so. If the camera captured no frames at some time, `mez.notes` gives the
    time and the reason.

    The edge holds frames as they crossed the link, perhaps compressed for applications with an accuracy
    floor; `frame.rung` says how. So their sizes may differ from frame to frame; then the logger `mez` warns
    once. `quality="original"` fetches the originals instead.

    Args:
        camera: The camera's name, or a pattern. With a pattern, frames of several cameras come mixed; those
            of each camera are in order.
        since: The first capture time that you want, as in `subscribe`. Default: the oldest frame that is
            held.
        until: The last capture time that you want. A time in the future means now. Default: now.
        quality: The rung of the frames: `"original"`, `"jpeg/w640/q70/420"`, or another rung of still images.
            If the edge has a frame neither at this rung nor as the original, the camera encodes it again. If
            the camera no longer has it, it comes as the edge has it. Default: frames as the edge has them,
            and originals of those that it does not have.
        held_only: Return only frames that the edge has. Do not ask the camera.
        size: As in `subscribe`.
        for_export: As in `subscribe`.
        edge: As in `subscribe`.
        keys: As in `subscribe`.
        timeout: As in `subscribe`.
        connect_timeout: As in `subscribe`.

    Raises:
        NotFoundError: The edge knows no such camera.
        PermissionDenied: A grant is missing: to read the camera, to fetch originals from it, or to write its
            frames into files.
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
    # `None`: this program may not list cameras. Then the edge itself checks the request.
    known = client.observable(arguments.text("camera", camera))
    if known is not None and not known:
        names = ", ".join(record.camera for record in client.observable("**") or ()) or "none at all"
        raise NotFoundError(f"the edge knows no camera {camera}; it knows {names}")
    # The past ends now, or with the newest frame of a camera whose clock is ahead of ours.
    now_ns = max((record.newest[2] for record in known or () if record.newest is not None), default=0)
    now_ns = max(now_ns, time.time_ns())
    # An end before the beginning is passed on unchanged: the edge refuses it.
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
