"""A profile from beginning to end, on a small video made here, with applications that need no model."""

import json
import re
import subprocess
import sys
from pathlib import Path

import cv2
import pytest

from mez.apps.boxes import Box
from mez.profile import app as apps
from mez.profile import document, main
from mez.profile.crew import Crew, Job
from mez.profile.families import family
from mez.profile.make import make
from mez.profile.report.examples import examples
from tests.profiles import APP, FRAMES, WIDTH, Quiet


def test_every_profile_ends_with_finer_rungs_and_the_original(
    video: Path, tmp_path: Path, app_file: Path
) -> None:
    """A search stops where more bytes bring nothing. Another light asks for more than that."""
    with Crew(Job((video,), f"{app_file}:bright", None, None, tmp_path), 1) as crew:
        made = make(crew, [family("h264", WIDTH)], Quiet(), FRAMES)
    names = {rung.rung for rung in made.profile.rungs}
    assert {"h264/q18", "original"} <= names
    original = made.profile.get("original")
    assert original is not None
    assert original.accuracy_normalised.value == 1.0
    assert original.bytes.mean == max(rung.bytes.mean for rung in made.profile.rungs)


def test_the_report_of_a_profile_in_which_only_the_original_is_good_shows_it(
    video: Path, tmp_path: Path, app_file: Path
) -> None:
    """In the dark no rung keeps all that the original does, so the original is one of the best."""
    dim = tmp_path / "dim.py"
    dim.write_text(APP.replace("> 150", "> 244"))
    with Crew(Job((video,), f"{dim}:bright", None, None, tmp_path), 1) as crew:
        made = make(crew, [], Quiet(), FRAMES, ["h264/w32/q50"])
        shown = examples(made, crew.lead.footage, crew.lead.app.thresholds)
    assert [rung.rung for rung in made.profile.frontier] == ["h264/w32/q50", "original"]
    assert [example.title.partition(":")[0] for example in shown] == ["as published", "h264/w32/q50"]


def test_an_interrupted_profile_goes_on_where_it_was(
    video: Path, app_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle: what was measured is not measured again, and the result is that of one go."""

    def run(cache: Path, stop_after: int | None) -> tuple[bytes | None, int]:
        searched = 0

        def counting(self: apps.App, *arguments: object) -> list[Box]:
            nonlocal searched
            searched += 1
            if searched == stop_after:
                raise KeyboardInterrupt
            return find(self, *arguments)  # type: ignore[arg-type]

        find = apps.App.find
        with monkeypatch.context() as patch:
            patch.setattr(apps.App, "find", counting)
            with Crew(Job((video,), f"{app_file}:bright", None, None, cache), 1) as crew:
                try:
                    made = make(crew, [family("tiles", WIDTH)], Quiet(), FRAMES)
                except KeyboardInterrupt:
                    return None, searched
        comparable = re.sub(rb'_ms_[a-z0-9]+": [0-9.e-]+', b"", made.profile.to_bytes())
        return comparable, searched

    whole, all_searched = run(tmp_path / "a", None)
    nothing, before = run(tmp_path / "b", all_searched // 2)
    assert nothing is None
    resumed, after = run(tmp_path / "b", None)
    assert resumed == whole
    assert after < all_searched * 0.7
    assert before + after < all_searched * 1.2
    damaged = next((tmp_path / "b").glob("found-*/*.json"))
    damaged.write_text("{")
    again, searched = run(tmp_path / "b", None)
    assert again == whole
    assert 0 < searched <= 2 * FRAMES, "what is damaged is measured again"


def test_the_command_makes_shows_and_compares(
    video: Path, app_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A profile that can be read, a report that needs nothing else, and pictures."""
    out = tmp_path / "squares.json"
    words = ["run", "--app", f"{app_file}:bright", "--video", str(video), "--families", "h264,jpeg"]
    words += ["--frames", "32", "--workers", "2", "--out", str(out), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--rungs", "h264/w80/q20"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "the detector's own ceiling" in shown
    assert "of the frames of a full measurement" in shown
    profile = document.load(out)
    assert profile.to_bytes() == out.read_bytes(), "reading and writing change nothing"
    assert profile.families == ["h264", "jpeg", "original"]
    assert profile.about.made_by.endswith("H.264 by openh264"), "the bytes of its rungs depend on it"
    assert profile.get("h264/w80/q20") is not None
    for rung in profile.rungs:
        assert (rung.camera_ms_mean is None) == (rung.rung == "original"), (
            "an original costs the camera nothing"
        )
        assert rung.frames_scored == 32
    best, cheapest = profile.frontier[-1], profile.cheapest(0.9)
    assert best.accuracy_normalised.value > 0.95
    assert cheapest is not None and cheapest.family == "h264"

    page = (tmp_path / "squares-report" / "index.html").read_text()
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert page.count("data:image/jpeg;base64,") >= 2
    data = json.loads(re.search(r"const data = (\{.*\});", page)[1])  # type: ignore[index]
    assert {rung["rung"] for rung in data["rungs"]} == {rung.rung for rung in profile.rungs}
    svg = (tmp_path / "squares-report" / "frontier.svg").read_text()
    assert "h264" in svg and "jpeg" in svg
    drawn = cv2.imread(str(tmp_path / "squares-report" / "frontier.png"))
    assert drawn is not None and drawn.std() > 5

    assert main(["show", str(out), "--report", str(tmp_path / "again")]) == 0
    assert profile.name in capsys.readouterr().out
    assert (tmp_path / "again" / "index.html").exists()
    copy = tmp_path / "copy.json"
    copy.write_bytes(out.read_bytes())
    picture_file = tmp_path / "both.svg"
    assert main(["compare", str(out), str(copy), "--picture", str(picture_file)]) == 0
    assert picture_file.exists()
    assert cheapest.rung in capsys.readouterr().out


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a line, with what to do, and without a traceback."""
    text = tmp_path / "text.json"
    text.write_text("{}")
    for words, reason in [
        (["run", "--app", "faces", "--video", str(tmp_path / "no.mp4")], "there is no video"),
        (["show", str(tmp_path / "no.json")], "cannot be read"),
        (["show", str(text)], "lacks 'format'"),
        (["compare", str(text), str(text)], "lacks 'format'"),
        (["import", str(tmp_path / "no.csv")], "cannot be read"),
    ]:
        assert main(words) == 1
        told = capsys.readouterr().err
        assert told.startswith("mez profile: ") and reason in told, told
        assert "Traceback" not in told
    finished = subprocess.run(
        [sys.executable, "-m", "mez", "profile", "--help"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0
    assert "mez profile run --app" in finished.stdout


def test_without_families_the_rungs_asked_for_are_measured(
    video: Path, app_file: Path, tmp_path: Path
) -> None:
    """And no others but the original: the ceiling's rung says what a floor may be, not what to send."""
    rungs = ["h264/q30", "jpeg/w80/q60/gray"]
    with Crew(Job((video,), f"{app_file}:bright", None, None, tmp_path), 1) as crew:
        made = make(crew, [], Quiet(), FRAMES, rungs)
    assert sorted(rung.rung for rung in made.profile.rungs) == [*rungs, "original"]
    assert made.profile.about.ceiling_jpeg is not None
