"""What the processes of a play are told, and what they tell: lines of JSON."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Devices:
    """What a process plays as devices.

    Attributes:
        cameras: A name for each device.
        edge: Where they dial, `HOST:PORT`.
        keys: The folder of keys.
        state: The folder for state.
        pictures: What the cameras film, again and again: a `.npy` of shape (pictures, height, width, 3), in
            the order blue, green, red; or a JPEG, which is sent as it is.
        fps: Frames per second of each camera.
        seconds: How long it lasts.
        answer_ms: The bound of answers.
        quality: Of frames that are made of pixels.
        tokens: The most frames of a device that may be on their way; `None`: the newest wins (Mez).
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
        is_sent: Whether there was a token for it.
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
        ms: Milliseconds from then until each stage (`Answer.ms`).
        answer_bytes: Of the answer.
        is_lit: Whether the light is on in what was shown.
    """

    camera: str
    captured_ns: int
    ms: dict[str, float]
    answer_bytes: int
    is_lit: bool


@dataclass(frozen=True, slots=True)
class Played:
    """What a process of devices tells in the end.

    Attributes:
        began_ns: When it began, by the host's clock.
        captured: All frames of all devices.
        got: All answers.
        skipped: Answers that were not given, by reason.
    """

    began_ns: int
    captured: list[Captured]
    got: list[Got]
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class Engine:
    """What a process plays as an engine.

    Attributes:
        pattern: The cameras whose frames it answers.
        edge: Where it subscribes.
        compute_ms: How long it waits, as if it computed.
        answer: `pixels`: it decodes each frame and answers with its pixels; or the file of a JPEG, with which
            it answers without looking at the frame.
        quality: Of answers of pixels; `None`: as Mez chooses.
        group: Engines of one group share the frames; `None`: it works alone.
        latency_ms: The bound of its subscription.
        accuracy: The floor of its subscription.
        profile: The file of the profile of its subscription.
        every: Whether it takes every frame that crossed the link, and not only the newest.
    """

    pattern: str
    edge: str
    compute_ms: float
    answer: str
    quality: int | None = None
    group: str | None = None
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
        decoded_ns: When it had its pixels.
        computed_ns: When the wait was over.
        answered_ns: When `Frame.answer` had returned.
        frame_bytes: Of the frame as it came.
    """

    camera: str
    captured_ns: int
    got_ns: int
    decoded_ns: int
    computed_ns: int
    answered_ns: int
    frame_bytes: int
