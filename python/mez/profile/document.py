"""Reads and writes profiles as JSON (`docs/profile-format.md`). A profile's name is the SHA-256 of its bytes.

No other Python module knows the format. In Rust, `mez_node::profile` reads it.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mez.profile.errors import FormatError
from mez.profile.pareto import undominated

FORMAT: Final = "mez-profile"
VERSION: Final = 1
"""The version of the format. A reader refuses any other.

Fields may be added without a new version, but never change their meaning."""

BYTES_MAX: Final = 1 << 20
"""The largest profile, in bytes. A subscription can carry no more."""

RUNGS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Score:
    """An accuracy.

    Attributes:
        value: 0 to 1.
        low: The lower end of its 95 % interval. `None` if it is unknown.
        high: The upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the frames that are sent: mean, and the sizes that 5, 50 and 95 % of them do not exceed."""

    mean: float
    p05: float
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One of several videos that a profile was measured on.

    Attributes:
        video: Its name.
        video_sha256: Its digest.
        frames_scored: Number of its frames that were scored.
        reference_boxes: Number of strong boxes in these frames as published.
    """

    video: str
    video_sha256: str
    frames_scored: int
    reference_boxes: int


@dataclass(frozen=True, slots=True)
class RungProfile:
    """The measurements of a rung.

    Attributes:
        rung: Its canonical name.
        family: The family that it was searched in.
        bytes: Sizes of its frames.
        sent_share: Share of published frames that are sent.
        accuracy_normalised: The accuracy with hysteresis, which contracts use. The lowest of all scenes.
        accuracy_normalised_strict: The accuracy with one threshold. `None` if it is unknown.
        camera_ms_mean: Mean processor time to encode a frame. `None` if it is unknown.
        camera_ms_p95: The 95 % quantile of this time.
        detector_ms_mean: Mean processor time of the application for a frame.
        frames_scored: Number of scored frames.
        accuracy_by_scene: The accuracy in each of `About.scenes`. Empty if there is one scene.
    """

    rung: str
    family: str
    bytes: Sizes
    sent_share: float
    accuracy_normalised: Score
    accuracy_normalised_strict: Score | None
    camera_ms_mean: float | None
    camera_ms_p95: float | None
    detector_ms_mean: float | None
    frames_scored: int
    accuracy_by_scene: tuple[Score, ...] = ()

    @property
    def bytes_per_published_frame(self) -> float:
        """Mean bytes of a published frame. Skipped frames count as 0."""
        return self.bytes.mean * self.sent_share


@dataclass(frozen=True, slots=True)
class About:
    """What a profile was measured on.

    Attributes:
        app: Name of the application.
        app_sha256: `App.sha256` of the application. Empty if it is unknown.
        strong: A box with at least this score is a detection. `None` if it is unknown.
        weak: A box with at least this score still counts as found.
        video: Name of the video.
        video_sha256: Digest of the video. Empty if it is unknown.
        width: Width of the camera's frames, in pixels. 0 for a stream of data records.
        height: Height of the camera's frames, in pixels. 0 for a stream of data records.
        frames_per_second: Frame rate of the video. `None` if it is unknown.
        frames_scored: Number of scored frames.
        reference_boxes: Number of strong boxes in these frames as published. `None` if it is unknown.
        ceiling_noise: The accuracy on published frames with one grey level of noise. No floor should be above
            it.
        ceiling_noise_strict: The same, strict.
        ceiling_jpeg: The accuracy of the rung `jpeg/q95/420`.
        ceiling_jpeg_strict: The same, strict.
        made_by: Program and version, and its H.264 encoder.
        source: For profiles that others measured: the source and its licence. Otherwise empty.
        scenes: The scenes, if there are several. Otherwise empty.
    """

    app: str
    app_sha256: str
    strong: float | None
    weak: float | None
    video: str
    video_sha256: str
    width: int
    height: int
    frames_per_second: float | None
    frames_scored: int
    reference_boxes: int | None
    ceiling_noise: Score | None
    ceiling_noise_strict: Score | None
    ceiling_jpeg: Score | None
    ceiling_jpeg_strict: Score | None
    made_by: str
    source: str = ""
    scenes: tuple[Scene, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """Bytes and accuracy of each rung, for one application and one kind of scene.

    Attributes:
        about: What it was measured on.
        rungs: In the order of their bytes.
    """

    about: About
    rungs: tuple[RungProfile, ...]
    _by_name: dict[str, RungProfile] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update((rung.rung, rung) for rung in self.rungs)

    def get(self, rung: str) -> RungProfile | None:
        """Return the measurements of a rung."""
        return self._by_name.get(rung)

    @property
    def frontier(self) -> list[RungProfile]:
        """The Pareto frontier: the rungs that no other rung beats in both bytes and accuracy."""
        return frontier(self.rungs)

    @property
    def families(self) -> list[str]:
        """The families that it has rungs of, by name."""
        return sorted({rung.family for rung in self.rungs})

    def cheapest(self, floor: float, family: str | None = None, strict: bool = False) -> RungProfile | None:
        """Return the rung of fewest bytes whose accuracy is at least `floor`; `None` if there is none."""
        for rung in sorted(self.rungs, key=lambda one: one.bytes_per_published_frame):
            score = rung.accuracy_normalised_strict if strict else rung.accuracy_normalised
            if (family is None or rung.family == family) and score is not None and score.value >= floor:
                return rung
        return None

    def to_bytes(self) -> bytes:
        """Return the bytes of its file. The same profile always has the same bytes."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            **asdict(self.about),
            "frontier": [rung.rung for rung in self.frontier],
            "rungs": [asdict(rung) for rung in self.rungs],
        }
        text = json.dumps(_rounded(document), indent=1, sort_keys=False, allow_nan=False, ensure_ascii=False)
        return text.encode() + b"\n"

    @property
    def name(self) -> str:
        """The SHA-256 of its bytes, by which brokers identify it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def frontier(rungs: Sequence[RungProfile]) -> list[RungProfile]:
    """Return the rungs that no other rung beats in both bytes and accuracy, from the fewest bytes up."""
    by_name = sorted(rungs, key=lambda one: one.rung)
    return undominated(by_name, lambda one: (one.bytes_per_published_frame, one.accuracy_normalised.value))


def load(path: Path) -> Profile:
    """Read a profile.

    Raises:
        FormatError: The file cannot be read, is not a profile, or is of another version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(
            f"{path} cannot be read ({error.strerror}); make one with: mez profile run"
        ) from error
    try:
        return parse(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def parse(data: bytes) -> Profile:
    """Read the bytes of a profile.

    Raises:
        FormatError: They are not a profile, or of another version.
    """
    if len(data) > BYTES_MAX:
        raise FormatError(f"the profile has {len(data)} bytes, more than {BYTES_MAX}; profile fewer rungs")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"the profile is not valid JSON ({error}); make a profile with: mez profile run"
        ) from error
    root = _Object(document, "the profile")
    if root.get("format", str) != FORMAT:
        raise FormatError(f'"format" is not "{FORMAT}"; make a profile with: mez profile run')
    if (version := root.get("version", int)) != VERSION:
        raise FormatError(
            f"the profile has version {version}, but this Mez reads version {VERSION}; make it "
            "again with: mez profile run"
        )
    rungs = tuple(_rung(_Object(item, f"rungs[{at}]")) for at, item in enumerate(root.list("rungs")))
    if not rungs:
        raise FormatError("the profile has no rung; profile at least one")
    if len(rungs) > RUNGS_MAX:
        raise FormatError(f"the profile has {len(rungs)} rungs, more than {RUNGS_MAX}; leave out some")
    names = [rung.rung for rung in rungs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"the rung {twice} is in the profile twice; keep one of the two")
    about = _about(root)
    if (about.width == 0) != (about.height == 0):
        raise FormatError(
            f"the profile is for frames of {about.width}x{about.height} pixels; both numbers must be 0 for "
            "data records, and above 0 for pictures"
        )
    for at, rung in enumerate(rungs):
        if len(rung.accuracy_by_scene) != len(about.scenes):
            raise FormatError(
                f"rungs[{at}].accuracy_by_scene has {len(rung.accuracy_by_scene)} scores, but the "
                f"profile has {len(about.scenes)} scenes; profile it again"
            )
    return Profile(about, rungs)


def check_fits(
    profile: Profile, *, app_sha256: str | None = None, camera_size: tuple[int, int] | None = None
) -> None:
    """Check that a profile is for this application and for cameras like this one.

    Raises:
        FormatError: It is for another application or size.
    """
    about = profile.about
    if app_sha256 is not None and about.app_sha256 != app_sha256:
        raise FormatError(
            f"the profile is for the application {about.app} in the version "
            f"{about.app_sha256[:12] or 'unknown'}, but this one is {app_sha256[:12]}, which may find other "
            "boxes; profile it again"
        )
    if camera_size is not None and (about.width, about.height) != camera_size:
        raise FormatError(
            f"the profile is for a camera of {about.width}x{about.height} pixels, but this one has "
            f"{camera_size[0]}x{camera_size[1]}; profile it with a video of this size"
        )


def _about(root: "_Object") -> About:
    return About(
        app=root.get("app", str),
        app_sha256=root.get("app_sha256", str),
        strong=root.number_or_none("strong"),
        weak=root.number_or_none("weak"),
        video=root.get("video", str),
        video_sha256=root.get("video_sha256", str),
        width=root.whole("width", 0),
        height=root.whole("height", 0),
        frames_per_second=root.number_or_none("frames_per_second"),
        frames_scored=root.whole("frames_scored", 1),
        reference_boxes=None if root.get("reference_boxes") is None else root.whole("reference_boxes", 0),
        ceiling_noise=root.score_or_none("ceiling_noise"),
        ceiling_noise_strict=root.score_or_none("ceiling_noise_strict"),
        ceiling_jpeg=root.score_or_none("ceiling_jpeg"),
        ceiling_jpeg_strict=root.score_or_none("ceiling_jpeg_strict"),
        made_by=root.get("made_by", str),
        source=root.get("source", str),
        scenes=tuple(
            _scene(_Object(item, f"scenes[{at}]"))
            for at, item in enumerate(root.list("scenes", optional=True))
        ),
    )


def _scene(item: "_Object") -> Scene:
    return Scene(
        video=item.get("video", str),
        video_sha256=item.get("video_sha256", str),
        frames_scored=item.whole("frames_scored", 1),
        reference_boxes=item.whole("reference_boxes", 0),
    )


def _rung(item: "_Object") -> RungProfile:
    sizes = _Object(item.get("bytes"), f"{item.what}.bytes")
    mean, p05, p50, p95 = (sizes.number(name, 0.0) for name in ("mean", "p05", "p50", "p95"))
    if not (mean > 0 and p05 <= p50 <= p95):
        raise FormatError(
            f"{item.what}.bytes are not positive and ascending (p05, p50, p95); profile the rung again"
        )
    accuracy = item.score_or_none("accuracy_normalised")
    if accuracy is None:
        raise FormatError(f"{item.what}.accuracy_normalised is missing; profile the rung again")
    return RungProfile(
        rung=item.get("rung", str),
        family=item.get("family", str),
        bytes=Sizes(mean, p05, p50, p95),
        sent_share=item.number("sent_share", 0.0, 1.0),
        accuracy_normalised=accuracy,
        accuracy_normalised_strict=item.score_or_none("accuracy_normalised_strict"),
        camera_ms_mean=item.number_or_none("camera_ms_mean", 0.0),
        camera_ms_p95=item.number_or_none("camera_ms_p95", 0.0),
        detector_ms_mean=item.number_or_none("detector_ms_mean", 0.0),
        frames_scored=item.whole("frames_scored", 1),
        accuracy_by_scene=tuple(
            _Object(score, f"{item.what}.accuracy_by_scene[{at}]").score()
            for at, score in enumerate(item.list("accuracy_by_scene", optional=True))
        ),
    )


class _Object:
    """A JSON object whose fields are checked one by one, with errors that name them."""

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise FormatError(f"{what} is {_kind(value)} and must be an object; see docs/profile-format.md")
        self._value: Mapping[str, Any] = value
        self.what = what

    def get(self, name: str, kind: type | None = None) -> Any:  # noqa: ANN401 (it is what JSON holds)
        if name not in self._value:
            raise FormatError(f"{self.what} lacks {name!r}; see docs/profile-format.md")
        value = self._value[name]
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise self._wrong(name, value, {str: "a text", int: "a whole number"}[kind])
        return value

    def list(self, name: str, optional: bool = False) -> list[Any]:
        value = [] if optional and name not in self._value else self.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, value, "a list")
        return value

    def number(self, name: str, least: float = -math.inf, most: float = math.inf) -> float:
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        if not (math.isfinite(value) and least <= value <= most):
            raise FormatError(
                f"{self.what}.{name} is {value}, and must be between {least:g} and {most:g}; "
                "see docs/profile-format.md"
            )
        return float(value)

    def whole(self, name: str, least: int) -> int:
        value: int = self.get(name, int)
        if value < least:
            raise FormatError(
                f"{self.what}.{name} is {value}, and must be at least {least}; see docs/profile-format.md"
            )
        return value

    def number_or_none(self, name: str, least: float = -math.inf) -> float | None:
        return None if self.get(name) is None else self.number(name, least)

    def score_or_none(self, name: str) -> Score | None:
        value = self.get(name)
        return None if value is None else _Object(value, f"{self.what}.{name}").score()

    def score(self) -> Score:
        ends = [None if self.get(end) is None else self.number(end, 0.0, 1.0) for end in ("low", "high")]
        return Score(self.number("value", 0.0, 1.0), *ends)

    def _wrong(self, name: str, value: object, wanted: str) -> FormatError:
        return FormatError(
            f"{self.what}.{name} is {_kind(value)} and must be {wanted}; see docs/profile-format.md"
        )


_KINDS: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number")


def _rounded(value: Any) -> Any:  # noqa: ANN401 (it is what JSON holds)
    """Round numbers to six digits, which is more than their precision, to make files smaller."""
    rules: Mapping[type, Callable[[Any], Any]] = {
        float: lambda number: float(f"{number:.6g}"),
        dict: lambda items: {key: _rounded(item) for key, item in items.items()},
        list: lambda items: [_rounded(item) for item in items],
        tuple: lambda items: [_rounded(item) for item in items],
    }
    rule = rules.get(type(value))
    return rule(value) if rule else value
