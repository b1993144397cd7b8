"""Defines the plans that the processes of a play read, and the results that they write: lines of JSON."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Devices:
    """The plan of a process that plays devices.

    Attributes:
        cameras: A name for each device.
        edge: The edge's address, `HOST:PORT`.
        keys: The folder of keys.
        state: The folder for state.
        pictures: The pictures that the cameras publish in a loop: a `.npy` of shape (pictures, height, width,
            3), in the order blue, green, red; or a JPEG, which is sent unchanged.
        fps: Frames per second of each camera.
        seconds: How long the play lasts.
        answer_ms: The latency bound of answers.
        quality: JPEG quality of frames that are encoded from pixels.
        tokens: The most frames of a device in flight; `None`: the newest frame wins (Mez).
        flashes_s: When a light in front of the cameras goes on and off in turn, in seconds since the
            beginning.
    """

    cameras: list[str]
    edge: str
    keys: str
    state: str
    pictures: str
    fps: float
    seconds: float
    answer_ms: float
    quality: int = 95
    tokens: int | None = None
    flashes_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Captured:
    """A frame of a device.

    Attributes:
        camera: The device's camera.
        captured_ns: When it was captured, by the host's clock.
        is_sent: Whether it was sent: there was a token for it.
    """

    camera: str
    captured_ns: int
    is_sent: bool


@dataclass(frozen=True, slots=True)
class Got:
    """An answer that a device has got.

    Attributes:
        camera: The device's camera.
        captured_ns: When its frame was captured, by the host's clock.
        ms: Milliseconds from the capture until each stage (`Answer.ms`).
        answer_bytes: Size of the answer.
        is_lit: Whether the light is on in the picture that was shown.
    """

    camera: str
    captured_ns: int
    ms: dict[str, float]
    answer_bytes: int
    is_lit: bool


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a process that plays devices.

    Attributes:
        began_ns: When it began, by the host's clock.
        captured: All frames of all devices.
        got: All answers.
        skipped: Number of answers that were skipped, by reason.
    """

    began_ns: int
    captured: list[Captured]
    got: list[Got]
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class Engine:
    """The plan of a process that plays an engine.

    Attributes:
        pattern: The cameras whose frames it answers.
        edge: The edge at which it subscribes.
        compute_ms: How long it waits instead of computing.
        answer: `pixels`: it decodes each frame and answers with its pixels; or the file of a JPEG, with which
            it answers without decoding the frame.
        quality: JPEG quality of answers of pixels; `None`: as Mez chooses.
        group: Engines of one group share the frames; `None`: it works alone.
        fresh: Whether it waits for the next frame where that comes sooner than the newest one is old, like
            `mez engine run`. Only in a group.
        latency_ms: The latency bound of its subscription.
        accuracy: The accuracy floor of its subscription.
        profile: The file of the profile of its subscription.
        every: Whether it takes every frame that crossed the link, and not only the newest.
    """

    pattern: str
    edge: str
    compute_ms: float
    answer: str
    quality: int | None = None
    group: str | None = None
    fresh: bool = False
    latency_ms: float | None = None
    accuracy: float | None = None
    profile: str | None = None
    every: bool = False


@dataclass(frozen=True, slots=True)
class Worked:
    """What an engine did with a frame. All times are by the host's clock.

    Attributes:
        camera: The device's camera.
        captured_ns: When it was captured.
        got_ns: When the engine had it.
        decoded_ns: When the engine had its pixels.
        computed_ns: When the wait was over.
        answered_ns: When `Frame.answer` had returned.
        frame_bytes: Size of the frame on arrival.
    """

    camera: str
    captured_ns: int
    got_ns: int
    decoded_ns: int
    computed_ns: int
    answered_ns: int
    frame_bytes: int
