"""What the demo shows and says is what happened, and its verdict fails for every reason to fail."""

import dataclasses
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from rich.console import Console, RenderableType

from mez import CameraInfo
from mez._processes import Exit
from mez.apps import pedestrian_hog
from mez.demo.account import Delivery, Ledger, Totals
from mez.demo.application import Asked, Replies
from mez.demo.detector import DetectorTotals, Finding
from mez.demo.options import Options, parse
from mez.demo.pictures import PICTURES_PER_CAMERA, Gallery, annotate
from mez.demo.report import Process, Results, write_json
from mez.demo.supervise import Incident
from mez.demo.table import ContractRow, ProcessRow, Snapshot, line, reasons, render
from mez.demo.traffic import Traffic, TrafficBook
from mez.demo.usage import Usage
from mez.profile.app import SPECS, load

CHECKOUT = Path(__file__).parents[2]

OPTIONS = Options(
    seconds=30,
    camera_names=("dock/cam1", "dock/cam2"),
    fps=10,
    video=Path("people.avi"),
    app=load("pedestrian-hog"),
    profile=None,
    scenario=None,
    score=0,
    policy="quantile",
    beside=(),
    headless=True,
    json=None,
    out=Path("out"),
    keep=False,
)


def books(*, gap: bool = False, corrupt: str | None = None, cameras: int = 2) -> Totals:
    """Book a hundred frames per camera, of which one was skipped."""
    ledger = Ledger(["dock/cam1", "dock/cam2"])
    for camera in range(1, cameras + 1):
        for sequence in range(100):
            if sequence == 40:
                continue
            skipped = {"application_busy": 1} if sequence == 41 and not gap else {}
            age_ms = 4.0 + sequence / 10
            ledger.take(
                Delivery(f"dock/cam{camera}", 1, sequence, skipped, age_ms, 150_000, None, sequence / 10)
            )
    if corrupt is not None:
        ledger.take(Delivery("dock/cam1", 1, 100, {}, 5.0, 10, corrupt, 10.0))
    return ledger.totals()


DETECTOR = DetectorTotals(
    frames={"dock/cam1": 40, "dock/cam2": 41},
    detections={"dock/cam1": 120, "dock/cam2": 130},
    latest={"dock/cam1": 3, "dock/cam2": 4},
    detector_ms_p50=99.5,
)


def incident(status: int = -signal.SIGKILL, *, resumed: bool = True) -> Incident:
    """Make a death of the edge at 5 s."""
    back = (6.1, 6.7) if resumed else (6.1, None)
    waiting = set() if resumed else {"dock/cam2"}
    return Incident("edge", Exit(5.0, status), "\n  It last logged:\n    oh no", waiting, *back)


RESULTS = Results(
    options=OPTIONS,
    elapsed_s=30.2,
    interrupted=False,
    totals=books(),
    detector=DETECTOR,
    replies=Replies(sent=80, lost=1),
    traffic=Traffic(published_bytes=411_800_000, link_bytes=15_900_000),
    asked=Asked(100.0, 0.95, Path("people.json")),
    states={"ok": 190, "latency_miss": 8},
    edge=Process("edge", 1, 40.0, 1.5, stopped=True),
    cameras=[Process(f"dock/cam{number}", 1, 50.0 + number, 3.0, stopped=True) for number in (1, 2)],
    incidents=[],
    failures=[],
)


def shown(what: RenderableType) -> str:
    """Print it as on a terminal of 120 columns."""
    text = io.StringIO()
    Console(file=text, width=120).print(what)
    return text.getvalue()


def test_figures_have_the_names_that_programs_rely_on() -> None:
    """And those of the whole are the sums of those of the cameras."""
    figures = RESULTS.figures()
    expected = {
        "cameras": 2,
        "published": 200,
        "delivered": 198,
        "skipped": {"application_busy": 2},
        "corrupt": 0,
        "detected_frames": 81,
        "detections": 250,
        "detector_ms_p50": 99.5,
        "edge_rss_mb": 40.0,
        "camera_rss_mb_max": 52.0,
        "balanced": True,
        "contract_states": {"ok": 190, "latency_miss": 8},
        "restarts": [],
        "problems": [],
    }
    assert {name: figures[name] for name in expected} == expected
    ages = [4.0 + sequence / 10 for sequence in range(100) if sequence != 40] * 2
    for percent in (50, 95, 99):
        assert figures[f"latency_ms_p{percent}"] == pytest.approx(np.percentile(ages, percent), abs=0.001)
    rows = figures["per_camera"]
    assert isinstance(rows, list)
    assert [row["camera"] for row in rows] == ["dock/cam1", "dock/cam2"]
    assert sum(row["delivered"] for row in rows) == 198


def test_figures_come_back_out_of_their_file(tmp_path: Path) -> None:
    """Also with a broker's death in them, and into a folder that is not there yet."""
    results = dataclasses.replace(RESULTS, incidents=[incident()])
    write_json(tmp_path / "new" / "demo.json", results.figures())
    read = json.loads((tmp_path / "new" / "demo.json").read_text())
    assert read == results.figures()
    assert read["restarts"] == [{"process": "edge", "cause": "killed by SIGKILL", "resume_ms": 1700.0}]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"totals": books(gap=True)},
            r"COUNTS DO NOT ADD UP.*200 published, 198 delivered.*frame 41: 1 frames",
        ),
        (
            {"totals": books(corrupt="the JPEG is cut off")},
            r"1 frames were corrupt.*frame 100: the JPEG is cut off",
        ),
        ({"totals": books(cameras=1)}, "No frame of dock/cam2"),
        ({"totals": books(cameras=0)}, "No frame was delivered"),
        ({"incidents": [incident(resumed=False)]}, r"edge was killed by SIGKILL.*did not come back"),
        ({"incidents": [incident(-signal.SIGSEGV)]}, r"SIGSEGV.*should not have ended"),
        ({"incidents": [incident(101)]}, r"edge exited with 101.*should not have ended(.|\n)*oh no"),
        ({"edge": Process("edge", 1, 40.0, 1.5, stopped=False)}, "edge did not stop"),
        ({"failures": ["The application failed: no."]}, "The application failed"),
    ],
)
def test_everything_that_goes_wrong_is_a_problem(changes: dict[str, object], says: str) -> None:
    """One at a time, so that each is enough."""
    problems = dataclasses.replace(RESULTS, **changes).problems()  # type: ignore[arg-type]
    assert len(problems) == 1
    assert re.search(says, problems[0]), problems


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_broker_that_somebody_killed_is_no_problem_once_frames_flow_again(number: signal.Signals) -> None:
    """That is what the demo invites to try."""
    results = dataclasses.replace(RESULTS, incidents=[incident(-number)])
    assert results.problems() == []
    assert f"edge was killed by {number.name}; frames came again after 1.7 s." in results.sentences()


def test_summary_says_what_a_person_wants_to_know() -> None:
    """In sentences, and in a row per camera and one for all."""
    said = " ".join(RESULTS.sentences())
    assert "2 cameras published 200 frames. 198 were delivered (99.0 %), all of them intact" in said
    assert "the other 2 are explained: 2 application busy" in said
    assert "95 % within 13.4 ms" in said
    assert "searched 81 frames (2.7 a second, median 100 ms each" in said
    assert "sent 80 results back to the cameras (1 more were lost)" in said
    assert "asked for 100 ms and an accuracy of 0.95 by the profile people. " in said
    assert "96.0 % ok, 4.0 % latency_miss" in said
    assert "The edge used 40 MB" in said
    rows = shown(RESULTS.table()).splitlines()
    assert [row.split()[:3] for row in rows[1:]] == [
        ["dock/cam1", "100", "99"],
        ["dock/cam2", "100", "99"],
        ["all", "200", "198"],
    ]


def test_summary_of_many_deaths_stays_readable() -> None:
    """The first ten one by one, the others as a number."""
    said = dataclasses.replace(RESULTS, incidents=[incident()] * 13).sentences()
    assert sum("edge was killed" in sentence for sentence in said) == 10
    assert said[-1] == "Brokers died 3 more times."


def test_summary_of_nothing_says_no_figures() -> None:
    """Ended before the first frame: no percentile of nothing, no share of nothing."""
    nothing = dataclasses.replace(
        RESULTS,
        totals=books(cameras=0),
        detector=DetectorTotals({}, {}, {}, None),
        states={},
        edge=Process("edge", 1, None, 0.0, stopped=True),
        elapsed_s=0.0,
    )
    assert nothing.sentences() == []
    assert nothing.figures()["latency_ms_p95"] is None
    assert "dock/cam1" in shown(nothing.table())


def snapshot(**changes: object) -> Snapshot:
    """Take a picture of a demo at 10 s in which the camera 2 is silent."""
    ledger = Ledger(["dock/cam1", "dock/cam2"])
    for sequence in range(100):
        ledger.take(Delivery("dock/cam1", 1, sequence, {}, 4.0, 150_000, None, sequence / 10))
    ledger.take(Delivery("dock/cam1", 1, 102, {"link_down": 2}, 9.0, 150_000, None, 10.0))
    taken = Snapshot(
        elapsed_s=10.0,
        seconds=30,
        fps=10,
        totals=ledger.totals(),
        now={name: ledger.now(name, 5.0, 10.0) for name in ("dock/cam1", "dock/cam2")},
        detector=DETECTOR,
        processes=[
            ProcessRow("edge", 4711, Usage(3.2, 41.0), "serving"),
            ProcessRow("dock/cam2", None, None, "down: killed by SIGKILL"),
        ],
        incidents=[],
    )
    return dataclasses.replace(taken, **changes)  # type: ignore[arg-type]


def test_table_shows_rates_reasons_and_what_is_down() -> None:
    """And how to try a failure."""
    text = shown(render(snapshot()))
    cam1, cam2 = [row for row in text.splitlines() if row.strip().startswith("dock/cam")][:2]
    assert cam1.split()[:6] == ["dock/cam1", "10.0", "4.0", "4.0", "150", "101"]
    assert "2 link down" in cam1
    assert "no frames" in cam2
    assert "down: killed by SIGKILL" in text
    assert "kill -9 4711" in text
    assert "10 of 30 s" in text


def test_table_does_not_hide_books_that_do_not_balance() -> None:
    """Nor corrupt frames."""
    text = shown(render(snapshot(totals=books(gap=True, corrupt="cut off"), incidents=[incident()])))
    assert "1 UNEXPLAINED" in text
    assert "1 CORRUPT" in text
    assert "frames came again after 1.7 s" in text
    assert "Try it" not in text


def test_line_says_the_same_for_logs() -> None:
    """On one line."""
    text = line(snapshot())
    assert "\n" not in text
    assert "delivered 101 of 103" in text
    assert "skipped 2 link down" in text
    assert "DOWN: dock/cam2" in text


def test_reasons_come_most_frequent_first() -> None:
    """Equal ones by name, so that the line stands still."""
    assert (
        reasons({"stalled": 1, "link_busy": 9, "evicted": 1, "refused": 0})
        == "9 link busy, 1 evicted, 1 stalled"
    )


# ---- pictures
# -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def picture() -> npt.NDArray[np.uint8]:
    """The first frame of `vtest.avi`."""
    fetched = subprocess.run([CHECKOUT / "tools/demo-video"], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        pytest.skip(f"no video: {fetched.stderr.strip()}")
    held, image = cv2.VideoCapture(str(CHECKOUT / ".cache/video/vtest.avi")).read()
    assert held
    return np.asarray(image, dtype=np.uint8)


@pytest.fixture(scope="module")
def find(picture: npt.NDArray[np.uint8]) -> Callable[[str, float, int], Finding]:
    """Make findings of a camera at a time, with the surest so many of the people."""
    boxes = pedestrian_hog.detect(picture, pedestrian_hog.STRONG)
    assert len(boxes) == 3

    def finding(camera: str, at_s: float, people: int) -> Finding:
        return Finding(camera, 2, round(at_s * 10), picture, tuple(boxes[:people]), 6.25, 99.0, at_s)

    return finding


def test_pictures_are_the_frames_with_most_people_of_each_part(
    find: Callable[[str, float, int], Finding], tmp_path: Path
) -> None:
    """Two of one camera, one of another that saw people in one part only, and a sheet of all."""
    gallery = Gallery(begins_s=0.0, seconds=30.0)
    for at_s, people in ((-1.0, 1), (3.0, 2), (4.0, 1), (16.0, 1), (20.0, 3), (31.0, 2)):
        gallery.keep(find("dock/cam1", at_s, people))
    gallery.keep(find("dock/cam2", 5.0, 0))
    gallery.keep(find("dock/cam2", 25.0, 1))
    album = gallery.write(tmp_path / "new")
    names = ["dock-cam1-2-000030.png", "dock-cam1-2-000200.png", "dock-cam2-2-000250.png"]
    assert [path.name for path in album.pictures] == names
    assert PICTURES_PER_CAMERA == 2
    assert album.sheet is not None
    for path in (*album.pictures, album.sheet):
        assert cv2.imread(str(path)) is not None
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted([*names, album.sheet.name])


def test_annotation_leaves_the_frame_itself_alone(
    find: Callable[[str, float, int], Finding], picture: npt.NDArray[np.uint8]
) -> None:
    """The image may be read-only and shared; and the boxes are where people are, and only there."""
    before = picture.copy()
    picture.setflags(write=False)
    drawn = annotate(find("dock/cam1", 3.0, 3))
    assert np.array_equal(before, picture)
    assert drawn.shape[0] > picture.shape[0]
    changed = (drawn[: picture.shape[0]] != picture).any(axis=2)
    ys, xs = np.nonzero(changed)
    boxes = find("dock/cam1", 3.0, 3).boxes
    near = [
        any(
            box.x - 3 <= x <= box.x + box.width + 3 and box.y - 3 <= y <= box.y + box.height + 3
            for box in boxes
        )
        for x, y in zip(xs, ys, strict=True)
    ]
    assert near
    assert all(near)


def test_no_people_make_no_pictures(tmp_path: Path) -> None:
    """And no empty folder."""
    album = Gallery(0.0, 30.0).write(tmp_path / "out")
    assert album.pictures == ()
    assert album.sheet is None
    assert not (tmp_path / "out").exists()


# ---- options
# ------------------------------------------------------------------------------------------------------


def test_options_default_to_a_good_show(tmp_path: Path) -> None:
    """Three cameras, ten frames a second, half a minute."""
    video = tmp_path / "people.avi"
    video.touch()
    options = parse(["--video", str(video)])
    assert (options.seconds, options.cameras, options.fps, options.headless) == (30, 3, 10, False)
    assert options.camera_names == ("dock/cam1", "dock/cam2", "dock/cam3")


@pytest.mark.parametrize("command", [["demo"], ["profile", "run"]])
def test_commands_say_the_same_of_the_detectors_that_they_take(command: list[str]) -> None:
    """A function of a file is named as it has to be given."""
    words = [sys.executable, "-m", "mez", *command, "--help"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f"--app APP your detector: {SPECS}" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--video", "nowhere.avi"], "nowhere.avi: there is no such file"),
        (["--cameras", "0"], "0 is not between 1 and"),
        (["--cameras", "many"], "invalid"),
        (["--seconds", "nan"], "nan is not between"),
        (["--fps", "1000"], "1000 is not between"),
        (["--speed", "9"], "unrecognized arguments"),
        (["--app", "mine.py:detect"], "--app: there is no file mine.py"),
        (["--app", "dog"], "FILE.py:FUNCTION"),
    ],
)
def test_mistakes_in_options_are_explained(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, with exit code 2 as usual."""
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_missing_video_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after an installation without a checkout."""
    monkeypatch.setattr("mez.demo.options.VIDEO", Path(".cache/video/not-there.avi"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        parse([])
    said = capsys.readouterr().err
    assert "make demo-video" in said
    assert "--video FILE" in said


def told(published: int, link: int) -> list[CameraInfo]:
    """What the edge says of a camera's traffic."""
    known: dict[str, Any] = {field.name: None for field in dataclasses.fields(CameraInfo)}
    known |= {"camera": "dock/cam1", "published_bytes": published, "link_bytes": link}
    return [CameraInfo(**known)]


def test_traffic_goes_on_when_brokers_start_again() -> None:
    """What crossed the links is told beside what was published, also where counts began anew."""
    book = TrafficBook()
    book.take(told(500_000, 300_000))
    book.begin()
    book.take(told(1_000_000, 500_000))
    book.take(told(1_000_000, 4_500_000))
    book.take(told(101_000_000, 4_600_000))
    # The camera, then the edge was killed.
    book.take(told(101_000_000, 6_500_000))
    book.take(told(50_000_000, 6_500_000))
    book.take(told(50_000_000, 1_000_000))
    book.take(told(100_000_000, 1_000_000))
    assert book.traffic() == Traffic(200_000_000, 7_000_000)
    assert str(book.traffic()) == "The cameras published 200.0 MB; 7.0 MB crossed the links (3.5 %)."
    assert str(Traffic(0, 0)) == ""


@pytest.mark.parametrize("asks", range(17, 29))
def test_no_more_crosses_than_was_published(asks: int) -> None:
    """All frames cross as they are. The camera reports once a second; the edge is asked every quarter."""
    book, frame = TrafficBook(), 136_000
    for quarter in range(asks):
        book.take(told(published=quarter // 4 * 8 * frame, link=quarter * 2 * frame))
        if quarter == 5:
            book.begin()
    traffic = book.traffic()
    assert 0.8 * traffic.published_bytes <= traffic.link_bytes <= traffic.published_bytes
    assert traffic.published_bytes > 0


CONTRACTS = {
    name: ContractRow(
        megabits=24.0,
        shared=False,
        share_bytes=None,
        rung="tiles/q80/420/d6/w768",
        state="latency_miss",
        reason="71.2 % of 75 frames within 100 ms, 98 % asked for; the link carries 0.6 Mbit/s",
    )
    for name in ("dock/cam1", "dock/cam2")
}


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_table_fits_the_terminal(columns: int) -> None:
    """From 80 columns up no line is wider, and no figure is cut off."""
    taken = snapshot(incidents=[incident()], contracts=CONTRACTS, bound_ms=100.0)
    text = io.StringIO()
    Console(file=text, width=columns).print(render(taken, columns))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    cam1, cam2 = [line.split() for line in lines if line.strip().startswith("dock/cam")][:2]
    assert (cam1[:4], cam1[-1]) == (["dock/cam1", "10.0", "4.0", "4.0"], "3"), text.getvalue()
    assert (cam2[0], cam2[-1]) == ("dock/cam2", "4"), text.getvalue()
    assert lines[1].split()[-1] == "found"
    assert text.getvalue().count("latency_miss") == len(CONTRACTS)
    assert len(lines) < 24
