"""A profile of a recorded stream from beginning to end, with functions as users write them."""

import contextlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

import mez
from mez.profile import document, main
from mez.profile.errors import AppError, ProfileError, RecordError
from mez.profile.families import Axis, Family
from mez.profile.search import Screened
from mez.profile.stream import grid, records, task
from mez.profile.stream.make import Made, frontier_gap, make
from mez.profile.stream.search import FrontierSearch

RECORDS = 40

MINE = '''
import mez

def coarser(payload, knobs):
    """Numbers in fewer digits."""
    return [round(value, int(knobs["digits"])) for value in payload]

KNOBS = mez.Knobs([mez.knob("digits", [4, 3, 2, 1]), mez.knob("rows", [100, 50, 20, 10, 5], operator="head")],
                  degrade=coarser)
SKIPPING = mez.Knobs([mez.knob("skip", [0, 1, 3])])

def raising(payload, knobs):
    if payload[0] > 0.9:
        raise KeyError("no such digit")
    return payload[:1]

RAISING = mez.Knobs([mez.knob("digits", [1, 2])], degrade=raising)

def total(payload):
    return sum(payload)

def totals(payloads):
    return sum(map(sum, payloads))

def near(reference, result):
    return max(0.0, 1 - abs(reference - result) / max(abs(reference), 1e-9))

def picky(payload):
    if payload[0] > 0.9:
        raise RuntimeError("a large one")
    return sum(payload)

def ninety(reference, result):
    return 90.0

def never(reference, result):
    return 0.5

def words(reference, result):
    return "good"
'''


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's file, and a recording beside it."""
    folder = tmp_path_factory.mktemp("stream")
    (folder / "my_stream_task.py").write_text(MINE)
    random = np.random.default_rng(4)
    lines = [json.dumps(sorted(random.random(100).round(6).tolist())) for _ in range(RECORDS)]
    (folder / "numbers.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def _make(mine: Path, app: str, accuracy: str, knobs: str, exhaustive: bool = False) -> Made:
    file = mine / "my_stream_task.py"
    streams = [records.load(mine / "numbers.jsonl")]
    loaded = task.load(f"{file}:{app}", f"{file}:{accuracy}", streams)
    return make(
        streams, task.named(f"{file}:{knobs}", "--knobs"), loaded, records=RECORDS, exhaustive=exhaustive
    )


def test_a_profile_says_what_each_rung_costs_and_keeps(mine: Path) -> None:
    """As records are sent: fewer bytes, less accuracy; and what is published keeps all."""
    made = _make(mine, "total", "near", "KNOBS", exhaustive=True)
    profile = made.profile
    again = document.parse(profile.to_bytes())
    assert again.to_bytes() == profile.to_bytes()
    assert (profile.about.width, profile.about.height, profile.about.frames_scored) == (0, 0, RECORDS)
    assert {rung.family for rung in profile.rungs} == {"data"}
    assert len(profile.rungs) == 4 * 5 + 1
    original = profile.get("original")
    assert original is not None
    assert original.accuracy_normalised.value == 1.0
    coarse, fine = profile.get("data/digits=1/rows=5"), profile.get("data/digits=4/rows=100")
    assert coarse is not None
    assert fine is not None
    assert coarse.bytes.mean < fine.bytes.mean < original.bytes.mean
    assert coarse.accuracy_normalised.value < 0.1 < 0.9 < fine.accuracy_normalised.value
    low, high = fine.accuracy_normalised.low, fine.accuracy_normalised.high
    assert low is not None
    assert high is not None
    assert low <= fine.accuracy_normalised.value <= high


def test_the_search_finds_the_frontier_of_all_rungs(mine: Path) -> None:
    """Within two hundredths at equal bytes, and without measuring all on all records."""
    found = _make(mine, "total", "near", "KNOBS")
    everything = _make(mine, "total", "near", "KNOBS", exhaustive=True)
    assert frontier_gap(found.profile, everything.profile) <= 0.02
    assert found.cost.results <= everything.cost.results
    assert found.cost.rungs_measured < everything.cost.rungs_measured


def test_a_search_of_a_large_grid_measures_a_part_of_it() -> None:
    """Its frontier is near that of all points, whatever the knobs do, as long as finer is better."""
    shares = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        sizes = (9, 7, 6)
        steps = [np.cumsum(random.exponential(1, size)) / size for size in sizes]
        weights = random.uniform(0.2, 1, len(sizes))
        family = Family(
            "data",
            "data",
            tuple(Axis(tuple(f"k{at}={n}" for n in range(size))) for at, size in enumerate(sizes)),
            "",
        )

        def result(
            point: tuple[int, ...], steps: list[np.ndarray] = steps, weights: np.ndarray = weights
        ) -> Screened:
            coarse = np.array([of_knob[place] for of_knob, place in zip(steps, point, strict=True)])
            return Screened(float(1e4 * np.exp(-2 * coarse.sum())), float(np.exp(-weights @ coarse**2)))

        search = FrontierSearch(family)
        while (point := search.due()) is not None:
            assert point not in search.known
            search.tell(point, result(point))
        gap = 0.0
        for point in family.points():
            best = result(point)
            reached = [one.accuracy for one in search.known.values() if one.bytes <= best.bytes * 1.01]
            gap = max(gap, best.accuracy - max(reached, default=0.0))
        assert gap <= 0.03, seed
        shares.append(len(search.known) / len(family))
    assert float(np.mean(shares)) < 0.5


def test_records_that_are_left_out_leave_the_last_result(mine: Path) -> None:
    """Which is right for the record that was sent, and old for those after it."""
    profile = _make(mine, "total", "near", "SKIPPING").profile
    kept = [profile.get(rung) for rung in ("original", "original/skip1", "original/skip3")]
    assert [rung.sent_share for rung in kept if rung] == [1.0, 0.5, 0.25]
    values = [rung.accuracy_normalised.value for rung in kept if rung]
    assert values[0] == 1.0
    assert values[0] > values[1] > values[2]


def test_several_streams_are_read_together(mine: Path) -> None:
    """The application gets a list: of each stream the record of the same place."""
    file = mine / "my_stream_task.py"
    streams = [records.load(mine / "numbers.jsonl")] * 2
    loaded = task.load(f"{file}:totals", f"{file}:near", streams)
    made = make(streams, task.named(f"{file}:KNOBS", "--knobs"), loaded, records=RECORDS)
    assert made.profile.about.video == "numbers.jsonl, numbers.jsonl"


@pytest.mark.parametrize(
    ("app", "accuracy", "knobs", "says"),
    [
        ("picky", "near", "KNOBS", r"picky raised RuntimeError on \S+numbers.jsonl line \d+.*line \d+ of"),
        ("total", "ninety", "KNOBS", r"returned 90.0 on \S+numbers.jsonl line 1 at original.*from 0"),
        ("total", "words", "KNOBS", r"returned 'good' on \S+numbers.jsonl line 1"),
        ("total", "never", "KNOBS", r"returned 0.5 for a result against itself"),
        (
            "total",
            "near",
            "RAISING",
            r"the degrade function raised KeyError on \S+numbers.jsonl line \d+ at data/",
        ),
        ("absent", "near", "KNOBS", r"has no absent; --app takes FILE.py:NAME"),
    ],
)
def test_errors_of_the_users_functions_name_the_record(
    mine: Path, app: str, accuracy: str, knobs: str, says: str
) -> None:
    """And what the function should do."""
    (mine / "numbers.jsonl").write_text((mine / "numbers.jsonl").read_text())
    large = mine / "large"
    large.mkdir(exist_ok=True)
    lines = (mine / "numbers.jsonl").read_text().splitlines()
    lines[7] = json.dumps([0.95] * 100)
    recording = large / "numbers.jsonl"
    recording.write_text("\n".join(lines))
    file = mine / "my_stream_task.py"
    streams = [records.load(recording)]
    with pytest.raises(AppError, match=says):
        loaded = task.load(f"{file}:{app}", f"{file}:{accuracy}", streams)
        make(streams, task.named(f"{file}:{knobs}", "--knobs"), loaded, records=RECORDS)


def test_a_short_recording_is_refused(mine: Path, tmp_path: Path) -> None:
    """An interval takes thirty records."""
    short = tmp_path / "short.jsonl"
    short.write_text("\n".join((mine / "numbers.jsonl").read_text().splitlines()[:9]))
    file = mine / "my_stream_task.py"
    streams = [records.load(short)]
    loaded = task.load(f"{file}:total", f"{file}:near", streams)
    with pytest.raises(ProfileError, match=r"9 records are too few .* record more"):
        make(streams, task.named(f"{file}:KNOBS", "--knobs"), loaded)


def test_recordings_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    """What is wrong, where, and what a recording is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "1.json").write_text("[1]")
    (tmp_path / "mixed" / "notes.md").write_text("what I did")
    (tmp_path / "no.mcap").write_bytes(b"RIFF")
    (tmp_path / "none.jsonl").write_text("\n\n")
    (tmp_path / "film.mp4").write_bytes(b"0")
    for name, says in [
        ("absent", "there is no recording .*absent; give a folder"),
        ("empty", "the folder .*empty holds no records"),
        ("mixed", "notes.md is not a record"),
        ("no.mcap", "is not an MCAP file"),
        ("none.jsonl", "is empty"),
        ("film.mp4", "is not a recording of data records"),
    ]:
        with pytest.raises(RecordError, match=says):
            records.load(tmp_path / name)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('[1]\n{"a": \n[2]\n')
    with pytest.raises(RecordError, match=r"bad.jsonl line 2 cannot be read"):
        [record.value() for record in records.load(bad).records]


def test_an_export_of_a_store_is_a_recording(tmp_path: Path) -> None:
    """In order of time, in chunks or not; one that is cut off, compressed or of two streams is refused."""
    path = tmp_path / "log.mcap"
    path.write_bytes(_mcap([("/log/web0/data", 20, b"[2]"), ("/log/web0/data", 10, b"[1]")]))
    stream = records.load(path)
    assert [record.value() for record in stream.records] == [[1], [2]]
    assert stream.records[0].content_type == "application/json"
    path.write_bytes(_mcap([("/log/web0/data", 20, b"[2]"), ("/log/web0/gaps", 10, b"{}")]))
    assert len(records.load(path).records) == 1
    path.write_bytes(_mcap([("/log/web0/data", 20, b"[2]"), ("/log/web1/data", 10, b"[1]")]))
    with pytest.raises(RecordError, match="has the records of /log/web0, /log/web1"):
        records.load(path)
    whole = _mcap([("/log/web0/data", 20, b"[2]")])
    path.write_bytes(whole[:-4])
    with pytest.raises(RecordError, match="damaged or cut off"):
        records.load(path)
    path.write_bytes(_mcap([("/log/web0/data", 20, b"[2]")], compression="zstd"))
    with pytest.raises(RecordError, match="is compressed"):
        records.load(path)


def _mcap(messages: list[tuple[str, int, bytes]], compression: str = "") -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<I", len(value)) + value.encode()

    def record(kind: int, body: bytes) -> bytes:
        return struct.pack("<BQ", kind, len(body)) + body

    topics = list(dict.fromkeys(topic for topic, _, _ in messages))
    inside = b""
    for number, topic in enumerate(topics):
        of = text("content_type") + text("application/json")
        inside += record(
            4, struct.pack("<HH", number, 0) + text(topic) + text("json") + struct.pack("<I", len(of)) + of
        )
    for topic, at_ns, payload in messages:
        inside += record(5, struct.pack("<HIQQ", topics.index(topic), 0, at_ns, at_ns) + payload)
    chunk = (
        struct.pack("<QQQI", 0, 99, len(inside), 0)
        + text(compression)
        + struct.pack("<Q", len(inside))
        + inside
    )
    return b"\x89MCAP0\r\n" + record(6, chunk)


def test_knobs_become_a_grid_from_fine_to_coarse() -> None:
    """Whatever the order in which their settings were declared."""
    spec = mez.Knobs(
        [
            mez.knob("rows", [10, 100, 50], operator="head"),
            mez.knob("least", [0.5, 0, 0.25], operator="threshold"),
            mez.knob("skip", [0, 2]),
        ]
    )
    body = json.dumps([number / 200 for number in range(200, 0, -1)]).encode()
    made = grid.grid(spec, lambda rung: len(spec.apply(rung, body, "application/json")))
    assert list(made.originals) == ["original", "original/skip2"]
    assert made.family is not None
    assert [axis.parts for axis in made.family.axes] == [
        ("rows=100", "rows=50", "rows=10"),
        ("least=0", "least=0.25", "least=0.5"),
        ("", "skip2"),
    ]
    assert made.family.rung((0, 1, 1)) == "data/rows=100/least=0.25/skip2"
    assert len(made) == len(spec.rungs())


def test_the_command_writes_a_profile(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And shows its frontier. What is missing is named."""
    file, out = mine / "my_stream_task.py", mine / "numbers.json"
    words = ["run", "--stream", str(mine / "numbers.jsonl"), "--app", f"{file}:total", "--rate", "2"]
    whole = [*words, "--accuracy", f"{file}:near", "--knobs", f"{file}:KNOBS", "--out", str(out)]
    assert main(whole) == 0
    assert "results of a full measurement" in capsys.readouterr().out
    profile = document.load(out)
    assert profile.about.frames_per_second == 2
    assert main(["show", str(out)]) == 0
    assert f"{RECORDS} records" in capsys.readouterr().out
    for more, says in [
        ([], "--accuracy is missing"),
        (["--accuracy", f"{file}:near"], "--knobs is missing"),
        (["--accuracy", f"{file}:near", "--knobs", f"{file}:MINE"], "has no MINE"),
        (["--accuracy", f"{file}:near", "--knobs", f"{file}:total"], "takes a mez.Knobs"),
    ]:
        with contextlib.suppress(SystemExit):
            assert main([*words, *more]) == 1
        assert says in capsys.readouterr().err
