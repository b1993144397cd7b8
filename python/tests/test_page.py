"""The page of an edge, in a real browser, with real cameras and applications. See out/page for pictures."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT, Browser, EdgeProcess, Hall, missing, running, sixteen, video
from tests.pipelines import until
from tests.support import enrolled

HOLE_S = 3.0
"""How long an edge is away at least, so that its history has a hole that is told."""

pytestmark = pytest.mark.skipif(missing() is not None and "CI" not in os.environ, reason=str(missing()))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests; each has its own session."""
    browser = Browser(ROOT / "out/page")
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeProcess]:
    """An edge with six cameras and three applications."""
    with running(tmp_path_factory.mktemp("page")) as edge, Hall(edge):
        yield edge


@pytest.mark.parametrize("story", ["grid", "degraded", "dark", "phone", "kiosk", "keyboard", "hidden"])
def test_a_person_sees(story: str, edge: EdgeProcess, browser: Browser) -> None:
    """Each view as its story tells; no complaint of the browser, and no rule of accessibility broken."""
    browser.tell(story, edge.link())


@pytest.mark.parametrize("host", ["localhost", "edge.test"])
def test_the_snippet_for_grpc_reads_the_camera(
    host: str, edge: EdgeProcess, browser: Browser, tmp_path: Path
) -> None:
    """The copied program runs, after the commands that it names: on the edge's host, and as if on another."""
    browser.tell("snippets", edge.link().replace("localhost", host))
    shutil.copy(ROOT / "out/page/mez.proto", tmp_path)
    code = (ROOT / "out/page/reads.py").read_text()
    assert ("unix://" in code) == (host == "localhost"), "the socket is used on the edge's host alone"
    # The browser alone knows the other host's name.
    (tmp_path / "reads.py").write_text(code.replace("edge.test", "127.0.0.1"))
    generate = next(line for line in code.splitlines() if "-m grpc_tools" in line)
    subprocess.run([sys.executable, *generate.split()[2:]], cwd=tmp_path, check=True)
    if host == "edge.test":
        enrolled(edge, "app/viewer", tmp_path / ".config/mez/keys", "--watch", "hall/plain")
    reader = [sys.executable, "-u", "reads.py"]
    home = {**os.environ, "HOME": str(tmp_path)}

    def read() -> list[str]:
        with subprocess.Popen(reader, cwd=tmp_path, env=home, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            process.kill()
        return said

    # A new grant is in force a moment later.
    said = until(read, bool, "it reads")
    assert said[0] == "hall/plain"
    assert int(said[-1]) > 1_000, "bytes of a picture"


def test_an_empty_site_teaches_the_next_step(tmp_path: Path, browser: Browser) -> None:
    """Instead of nothing."""
    with running(tmp_path) as edge:
        browser.tell("empty", edge.link())


def test_sixteen_cameras_fit(tmp_path: Path, browser: Browser) -> None:
    """Each with its picture."""
    with running(tmp_path) as edge, sixteen(edge):
        browser.tell("sixteen", edge.link())


def test_h264_is_decoded_by_the_browser(tmp_path: Path, browser: Browser) -> None:
    """The edge gives it as it came, and makes no pictures of it."""
    with running(tmp_path) as edge, video(edge):
        browser.tell("video", edge.link())


def test_the_page_outlives_its_edge(edge: EdgeProcess, browser: Browser) -> None:
    """It says that the edge is away, and then how to sign in, and goes on by itself when somebody does.

    Its history tells of it afterwards.
    """
    browser.tell("restart before", edge.link())
    link = edge.link()
    edge.stop()
    browser.tell("restart during", link)
    time.sleep(HOLE_S)
    edge.start()
    browser.tell("restart after", edge.link())
    # While the edge was away, nobody took frames: its history has a hole.
    for story in ("history", "history on a phone"):
        browser.tell(story, edge.link())


def test_what_the_page_computes() -> None:
    """Timelines out of counters, sentences out of figures."""
    subprocess.run(["npm", "--prefix", str(ROOT / "web"), "run", "--silent", "unit"], check=True)
