"""What a profile says: the form of the document, and the profile that comes with Mez."""

import json
from pathlib import Path
from typing import Any

import pytest

from mez import _native
from mez.apps.boxes import Box
from mez.errors import Error
from mez.profile import document, shipped
from mez.profile.errors import FormatError, ProfileError
from mez.profile.families import DEFAULT
from mez.profile.measure import Measurement


def sound() -> dict[str, Any]:
    """Return the example of the document."""
    text = (Path(__file__).parents[2] / "docs" / "profile-format.md").read_text()
    example: dict[str, Any] = json.loads(text.partition("```json\n")[2].partition("```")[0])
    return example


def test_the_example_of_the_document_is_a_profile() -> None:
    """And has every field that is written."""
    profile = document.parse(json.dumps(sound()).encode())
    assert json.loads(profile.to_bytes()) == sound()
    assert len(profile.name) == 64


def test_what_is_no_profile_is_refused_by_name() -> None:
    """Every field, if it is missing or of another type; and other versions, applications and cameras."""
    example = sound()
    for name in example:
        if name in {"frontier", "scenes"}:
            continue  # it follows from the rungs; one video has no scenes
        with pytest.raises(FormatError, match=f"'{name}'"):
            document.parse(json.dumps({key: value for key, value in example.items() if key != name}).encode())
        with pytest.raises(FormatError, match=f"{name}|lacks"):
            document.parse(json.dumps({**example, name: {"nonsense": True}}).encode())
    rung = example["rungs"][0]
    for name in rung.keys() - {"accuracy_by_scene"}:
        with pytest.raises(FormatError, match=rf"rungs\[0\] lacks '{name}'"):
            less = {key: value for key, value in rung.items() if key != name}
            document.parse(json.dumps({**example, "rungs": [less]}).encode())
    changes: list[tuple[dict[str, Any], str]] = [
        ({"version": 2}, "has version 2, but this Mez reads version 1"),
        ({"format": "other"}, '"format" is not "mez-profile"'),
        ({"rungs": []}, "no rung"),
        ({"rungs": [rung, rung]}, "in the profile twice"),
        ({"rungs": [{**rung, "sent_share": 1.5}]}, r"rungs\[0\].sent_share is 1.5, .* between 0 and 1"),
        ({"width": -1}, "width is -1"),
        ({"width": 0}, "0x576 pixels; both numbers must be 0"),
        ({"scenes": [{"video": "day.mkv"}]}, r"scenes\[0\] lacks 'video_sha256'"),
        ({"scenes": {}}, "scenes is an object and must be a list"),
        (
            {"rungs": [{**rung, "accuracy_by_scene": [rung["accuracy_normalised"]]}]},
            r"rungs\[0\].accuracy_by_scene has 1 scores, but the profile has 0 scenes",
        ),
    ]
    for change, reason in changes:
        with pytest.raises(FormatError, match=reason):
            document.parse(json.dumps({**example, **change}).encode())
    for data in (b"", b"[" * 100_000, b"\xff", b'{"format": NaN}'):
        with pytest.raises(FormatError):
            document.parse(data)
    profile = document.parse(json.dumps(example).encode())
    document.check_fits(profile, app_sha256=profile.about.app_sha256, camera_size=(768, 576))
    with pytest.raises(FormatError, match="profile it again"):
        document.check_fits(profile, app_sha256="0" * 64)
    with pytest.raises(FormatError, match="768x576 pixels, but this one has 1920x1080"):
        document.check_fits(profile, camera_size=(1920, 1080))


def test_measurements_survive_the_cache() -> None:
    """And damaged ones are errors."""
    one = Measurement("h264/q30", [10, 20], 3, [1.5], [2.25], {7: [Box(1, 2, 3, 4, 0.5, "cat")]})
    assert Measurement.from_json(one.to_json()) == one
    assert one.bytes_per_published_frame == 10
    for text in ("", "[]", '{"found": 3}', '{"found": {}, "other": 1}'):
        with pytest.raises(FormatError):
            Measurement.from_json(text)


def test_every_profile_error_says_what_to_do() -> None:
    """By the rule of all errors of Mez."""
    assert issubclass(ProfileError, Error)
    assert DEFAULT == ("h264", "tiles", "jpeg")


def test_the_profile_that_comes_with_mez_is_sound() -> None:
    """It is of the demo's detector and the demo's video, and cameras can make all of its rungs."""
    folder = Path(document.__file__).parents[1] / "profiles"
    profile = document.load(folder / "pedestrian-hog-vtest.json")
    script = (Path(__file__).parents[2] / "tools" / "demo-video").read_text()
    assert profile.about.video_sha256 in script
    assert profile.about.app == "pedestrian-hog"
    for rung in profile.rungs:
        _native.rung_facts(rung.rung, profile.about.width, profile.about.height)
    cheapest = profile.cheapest(0.96)
    assert cheapest is not None
    assert cheapest.bytes_per_published_frame < 2000
    assert {"h264/q18", "original"} <= {rung.rung for rung in profile.rungs}, "another light needs them"


def test_the_profile_that_comes_with_mez_is_found_by_its_video(tmp_path: Path) -> None:
    """By what the video holds; for any other there is none."""
    other = tmp_path / "vtest.avi"
    other.write_bytes(b"another video of that name")
    assert shipped.find("pedestrian-hog", other) is None
    assert shipped.find("no such application", other) is None
    video = Path(__file__).parents[2] / ".cache/video/vtest.avi"
    if not video.exists():
        pytest.skip("the demo's video is not here")
    path = shipped.find("pedestrian-hog", video)
    assert path is not None
    about = document.load(path).about
    assert (about.app, about.width, about.height) == ("pedestrian-hog", 768, 576)
