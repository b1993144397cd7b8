"""Engines by name, what they return, and engines as processes with a real edge and real cameras."""

import contextlib
import functools
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mez
import mez.engine
from mez import _native
from mez._commands import Teller
from mez._reports import Report
from mez.engine import answers
from mez.engine.style.painter import SHIPPED
from mez.engine.supervisor import Supervisor
from mez.engine.worker import Work
from tests.support import flowing, groups, picture

_PATIENCE_S = 60.0

# What an engine returns for the picture of a number, and what is said of that.
_BAD = '''
import os, time
import numpy as np
import mez


def bad(image):
    """Something else for each brightness; `tests.support.number_of` tells pictures apart."""
    number = round((float(image.mean()) - MEAN) / 2)
    if number == 1:
        return None
    if number == 2:
        return image[::2]
    if number == 3:
        return np.full(image.shape, np.nan, np.float32)
    if number == 4:
        return "a text"
    if number == 5:
        raise ValueError("no paint left")
    if number == 6 and not os.path.exists(FLAG):
        open(FLAG, "w").close()
        time.sleep(3600)
    return 255 - image
'''


def _refused(result: object) -> str:
    with pytest.raises(mez.engine.AnswerRefusedError) as refused:
        mez.engine.picture(picture(0), result)
    return str(refused.value)


def test_what_is_no_answer_is_refused_with_a_reason() -> None:
    """Of each kind; each says what to do."""
    image = picture(0)
    assert "nothing" in _refused(None)
    assert "(24, 64, 3) for (48, 64, 3)" in _refused(image[::2])
    assert "not all of them finite" in _refused(np.full(image.shape, np.nan))
    assert "return mez.Overlay(pixels)" in _refused(np.zeros((*image.shape[:2], 4), np.uint8))
    assert "pixels of type float64" in _refused(image / 255)
    assert "returned str" in _refused("text")
    assert "invalid boxes" in _refused(_box(float("nan")))
    assert "more than 1000" in _refused([(0.0, 0.0, 1.0, 1.0)] * 1001)


def _box(left: float) -> list[dict[str, Any]]:
    """A box that begins there."""
    return [{"xyxy": (left, 4.0, 30.0, 30.0), "score": 0.5}]


def test_pictures_grey_pictures_and_boxes_are_answers() -> None:
    """Boxes are drawn into a copy: what was found must not change what others see."""
    image = picture(0)
    before = image.copy()
    assert mez.engine.picture(image, image) is not None
    grey = mez.engine.picture(image, image[:, :, 0])
    assert (grey[:, :, 2] == image[:, :, 0]).all()
    drawn = mez.engine.picture(image, _box(2.0))
    changed = (drawn != image).any(axis=2)
    assert changed[10:20, 2].all()
    assert not changed[16:24, 10:20].any()
    # In pixels of another size, and beyond the picture.
    halves = mez.Detections([(1.0, 2.0, 1e9, 15.0)], size=(32, 24))
    assert (mez.engine.picture(image, halves) != image).any(axis=2)[10:20, 2].all()
    assert (image == before).all()


def test_overlays_are_drawn_or_sent_on() -> None:
    """As the caller wishes; boxes too."""
    image = picture(0)
    overlay = mez.Overlay(np.full((24, 32, 4), (0, 0, 255, 255), np.uint8))
    assert (mez.engine.picture(image, overlay) == (0, 0, 255)).all()
    assert answers.answer(image, overlay) is overlay
    assert isinstance(answers.answer(image, _box(2.0)), mez.Detections)
    assert isinstance(answers.answer(image, image), np.ndarray)


def test_engines_that_cannot_be_loaded_say_what_to_do(tmp_path: Path) -> None:
    """A name, a file, a class, a device."""
    (tmp_path / "mine.py").write_text(
        "class Dark:\n    def __init__(self, device): raise OSError('no GPU')\n"
    )
    (tmp_path / "broken.onnx").write_bytes(b"no network")
    detector = Path(mez.__file__).parent / "apps" / "networks" / "nanodet-416.onnx"
    for name, says in (
        ("painting", "there is no engine painting; give noop, boxes, style"),
        (f"{tmp_path}/mine.py:none", "has no function or class none"),
        (f"{tmp_path}/mine.py:Dark", "OSError: no GPU"),
        (f"{tmp_path}/broken.onnx", "cannot be loaded by ONNX Runtime"),
        (f"{tmp_path}/nobody.onnx", "there is no model"),
        (str(detector), "is not a style: it takes"),
    ):
        with pytest.raises(mez.engine.EngineError, match=says):
            mez.engine.load(name)
    with pytest.raises(mez.engine.EngineError, match='give "cpu" or "cuda"'):
        mez.engine.load("noop", "tpu")
    onnxruntime = importlib.import_module("onnxruntime")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(mez.engine.EngineError, match=r"no device cuda.*onnxruntime-gpu"):
            mez.engine.load("style", "cuda")


def test_the_style_paints_pictures_of_every_size() -> None:
    """The same picture gives the same; the file is small and has no weights of the loss network."""
    assert SHIPPED.stat().st_size <= 2_000_000
    paint = mez.engine.load("style")
    image = np.random.default_rng(1).integers(0, 256, (45, 67, 3), np.uint8)
    painted = paint(image)
    assert isinstance(painted, np.ndarray)
    assert (painted.shape, str(painted.dtype)) == (image.shape, "uint8")
    assert (painted != image).mean() > 0.9
    assert (np.asarray(paint(image)) == painted).all()
    for shape in ((1, 1, 3), (2, 300, 3)):
        assert np.asarray(paint(np.zeros(shape, np.uint8))).shape == shape


def test_boxes_finds_what_is_there() -> None:
    """In a plain picture nothing."""
    found = mez.engine.load("boxes")(np.full((240, 320, 3), 90, np.uint8))
    assert isinstance(found, mez.Detections)
    assert len(found) == 0


def test_a_function_of_ones_own_answers_in_this_process(edge: mez.Edge) -> None:
    """Each camera gets its own picture back, and both get turns."""
    ended = threading.Event()
    counts: list[mez.engine.Counts] = []

    def work() -> None:
        counts.append(mez.engine.run(lambda image: 255 - image, "a/*", edge=edge, end=ended.is_set))

    with flowing("a/one", "a/two", edge=edge) as cameras:
        thread = threading.Thread(target=work)
        thread.start()
        with cameras[0].answers(answer_ms=20_000) as one, cameras[1].answers(answer_ms=20_000) as two:
            for answers in (one, two, one, two):
                answer = answers.next(timeout=_PATIENCE_S)
                assert np.abs(answer.image.astype(int) - (255 - picture(1).astype(int))).max() < 40
        ended.set()
        thread.join(_PATIENCE_S)
    assert counts[0].answered >= 4
    assert (counts[0].refused, counts[0].last_refusal) == (0, "")


@contextlib.contextmanager
def _engine(
    name: str, edge: str, folder: Path, *options: str
) -> Iterator[tuple["subprocess.Popen[str]", list[dict[str, Any]]]]:
    """`mez engine run`, and what it says."""
    words = [str(Path(sys.executable).parent / "mez"), "engine", "run", name, "--cameras", "a/*"]
    words += ["--edge", edge, "--json", "--progress", "0.2", "--state", str(folder / "state"), *options]
    said: list[dict[str, Any]] = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:

        def hear() -> None:
            assert process.stdout is not None
            said.extend(json.loads(line) for line in process.stdout)

        thread = threading.Thread(target=hear, daemon=True)
        thread.start()
        try:
            yield process, said
        finally:
            process.terminate()
            process.wait(_PATIENCE_S)
            thread.join(_PATIENCE_S)


@pytest.mark.parametrize("options", [(), ("--no-fresh",)])
def test_workers_wait_for_fresh_frames_unless_told_otherwise(
    edge: mez.Edge, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Their group has what the command line says."""
    with (
        flowing("a/one", edge=edge) as (camera,),
        camera.answers(answer_ms=20_000) as answers,
        _engine("noop", f"unix://{edge.socket}", tmp_path, *options),
    ):
        assert answers.next(timeout=_PATIENCE_S)
        (group,) = groups(edge)
    assert (group["name"], group["deliver"], group["fresh"]) == ("engine", "newest", not options)


def _until(holds: Callable[[], object], said: object) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, said
        time.sleep(0.02)


def _is_refused(said: list[dict[str, Any]], why: str) -> bool:
    return why in _status(said).get("last_refusal", "")


def _both(answer: Callable[[], object], holds: Callable[[], bool]) -> bool:
    """There is no answer, and something holds."""
    return answer() is None and holds()


def _status(said: list[dict[str, Any]]) -> dict[str, Any]:
    """The last status; empty: none was told."""
    found: dict[str, Any] = next((one["status"] for one in reversed(said) if "status" in one), {})
    return found


def test_an_engine_survives_what_its_function_does(edge: mez.Edge, tmp_path: Path) -> None:
    """Nothing, another size, NaN, a text, an exception; then a hang, which costs the worker's life."""
    mean = float(picture(0).mean())
    flag = tmp_path / "hung"
    code = _BAD.replace("MEAN", repr(mean)).replace("FLAG", repr(str(flag)))
    (tmp_path / "bad.py").write_text(code)
    options = ("--answer-within", "1")
    with (
        mez.publisher("a/one", edge=edge) as camera,
        camera.answers(answer_ms=20_000) as answers,
        _engine(f"{tmp_path}/bad.py:bad", f"unix://{edge.socket}", tmp_path, *options) as (_, said),
    ):
        camera.wait_connected(timeout=30)

        def answer(number: int) -> mez.Answer | None:
            """Publish a picture until there is an answer or a reply of refusal."""
            camera.send(_encoded(number))
            with contextlib.suppress(mez.WaitTimeoutError):
                return answers.next(timeout=0.2)
            return None

        _until(lambda: answer(0), said)
        for number, says in (
            (1, "returned nothing"),
            (2, "keep the size"),
            (3, "not all of them finite"),
            (4, "returned str"),
            (5, "ValueError: no paint left (bad.py:"),
        ):
            told = functools.partial(_is_refused, said, says)
            _until(functools.partial(_both, functools.partial(answer, number), told), said)
        reply = camera.next_reply(timeout=_PATIENCE_S)
        assert "returned nothing" in str(reply.json()["refused"])
        refused = _status(said)["refused"]
        assert refused >= 5
        _until(lambda: answer(6) is None and flag.exists(), said)
        _until(lambda: _status(said)["restarts"] == 1, said)
        _until(lambda: answer(0), said)
        assert any("worked for more than 1 s on a/one" in one.get("say", "") for one in said)
        assert _status(said)["refused"] >= refused


def _encoded(number: int) -> bytes:
    return _native.encode_jpeg(picture(number), 90)


def test_one_of_two_engines_is_killed_and_the_other_goes_on(edge: mez.Edge, tmp_path: Path) -> None:
    """Both answer before; the killed one comes back."""
    socket = f"unix://{edge.socket}"
    with (
        flowing("a/one", "a/two", edge=edge) as cameras,
        cameras[0].answers(answer_ms=20_000) as answers,
        _engine("noop", socket, tmp_path, "--workers", "2") as (_, said),
    ):
        _until(lambda: len(_status(said).get("pids", ())) == 2, said)
        last = answers.next(timeout=_PATIENCE_S).frame
        victim, other = _status(said)["pids"]
        os.kill(victim, signal.SIGKILL)
        for _ in range(10):
            frame = answers.next(timeout=_PATIENCE_S).frame
            assert frame > last
            last = frame
        _until(lambda: _status(said)["restarts"] == 1, said)
        _until(lambda: len(_status(said)["pids"]) == 2, said)
        assert other in _status(said)["pids"]
        assert victim not in _status(said)["pids"]


@pytest.mark.parametrize(
    ("grants", "says"),
    [
        ({"app/**": {"watch": "a/*"}}, r"mez keys grant app/\S+ reply a/one"),
        ({"app/**": {"watch": "b/*", "reply": "a/*"}}, r"watch"),
    ],
    ids=["reply", "watch"],
)
def test_an_engine_without_a_right_ends_and_names_it(
    grants: dict[str, dict[str, str]], says: str, tmp_path: Path
) -> None:
    """Waiting would help nobody: it has never answered."""
    with (
        mez.edge(rights=grants) as edge,
        flowing("a/one", edge=edge) as (camera,),
        camera.answers(answer_ms=20_000),
        _engine("noop", str(edge.grpc_address), tmp_path, "--keys", str(edge.keys)) as (process, _),
    ):
        assert re.search(says, _ended(process))


def _ended(process: "subprocess.Popen[str]") -> str:
    """What an engine said when it ended by itself, with an error."""
    assert process.wait(_PATIENCE_S) == 1
    assert process.stderr is not None
    return process.stderr.read()


def test_an_engine_that_cannot_be_loaded_ends_at_once(edge: mez.Edge, tmp_path: Path) -> None:
    """It is not started again and again."""
    (tmp_path / "none.onnx").write_bytes(b"no network")
    with _engine(f"{tmp_path}/none.onnx", f"unix://{edge.socket}", tmp_path) as (process, _):
        assert "cannot be loaded by ONNX Runtime" in _ended(process)


def test_an_argument_that_is_wrong_ends_the_engine(edge: mez.Edge, tmp_path: Path) -> None:
    """It is wrong the next time too."""
    with _engine("noop", f"unix://{edge.socket}", tmp_path, "--latency-ms", "-1") as (process, said):
        assert "latency_ms is -1" in _ended(process)
    assert not any("restarts in" in one.get("say", "") for one in said)


def test_an_engine_waits_for_room_at_an_edge_that_is_full(edge: mez.Edge, tmp_path: Path) -> None:
    """Others leave, and it answers."""
    with (
        contextlib.ExitStack() as others,
        flowing("a/one", edge=edge) as (camera,),
        camera.answers(answer_ms=20_000) as answers,
    ):
        with contextlib.suppress(mez.BusyError):
            while True:
                others.enter_context(mez.subscribe("b", edge=edge))
        with _engine("noop", f"unix://{edge.socket}", tmp_path) as (process, said):
            _until(lambda: any("the engine waits: " in one.get("say", "") for one in said), said)
            assert process.poll() is None
            others.close()
            assert answers.next(timeout=_PATIENCE_S)


def _heard(folder: Path, *reports: Report) -> list[str]:
    """What people are told when workers report this, twice."""
    out = io.StringIO()
    work = Work("noop", "a/*", None, "engine", "cpu", None, None, "engine", fresh=True)
    supervisor = Supervisor(work, len(reports), 5.0, folder, Teller(is_json=True, out=out))
    for _ in range(2):
        for post, report in zip(supervisor._crew.posts, reports, strict=True):
            post.report = report
        supervisor._hear()
        # In between a camera that is allowed is answered.
        for post in supervisor._crew.posts:
            post.report = Report(done=post.report.done)
        supervisor._hear()
    return [json.loads(line)["say"] for line in out.getvalue().splitlines()]


_AWAY = Report(away="no edge")
_DENIED = Report(away="no right", is_refused=True)


@pytest.mark.parametrize("reports", [(_AWAY, _DENIED), (_DENIED, _AWAY)])
def test_a_missing_right_is_seen_behind_an_edge_that_is_away(
    tmp_path: Path, reports: tuple[Report, Report]
) -> None:
    """Nothing was answered yet: a mistake in what was set up."""
    with pytest.raises(mez.engine.EngineError, match="no right"):
        _heard(tmp_path, *reports)


def test_a_camera_that_is_denied_beside_one_that_is_not_is_told_once(tmp_path: Path) -> None:
    """The engine does not wait: it answers the other one."""
    denied = Report(away="no right", is_refused=True, done=7)
    assert _heard(tmp_path, denied) == ["frames are not answered: no right"]
