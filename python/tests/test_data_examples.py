"""The examples with data records: recorded, profiled and run between real brokers, each part a process."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_examples import EXAMPLES, MEZ, Program, Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site whose edge broker runs."""
    site = Site(tmp_path)
    with Program(site, MEZ, "edge") as edge:
        site.link = edge.waits_to_say(r"link=(\S+)")[1]
        yield site


def _profiled(site: Site, program: str, streams: list[str], name: str, *words: str) -> None:
    """Record, and profile. Originals are taken out of the profile: this host has no slow link."""
    example = EXAMPLES / program
    with Program(site, sys.executable, example, "record", "recordings", *words) as recorded:
        recorded.ends()
    mine = [f"{example}:{part}" for part in (name, "agreement", "KNOBS")]
    given = [
        "--app",
        mine[0],
        "--accuracy",
        mine[1],
        "--knobs",
        mine[2],
        "--frames",
        "30",
        "--out",
        "all.json",
    ]
    paths = [word for stream in streams for word in ("--stream", stream)]
    with Program(site, MEZ, "profile", "run", *paths, *given) as profiled:
        assert "of the results of a full measurement" in profiled.ends()
    profile = json.loads((site.folder / "all.json").read_text())
    profile["rungs"] = [rung for rung in profile["rungs"] if rung["rung"] != "original"]
    profile["frontier"] = [rung for rung in profile["frontier"] if rung != "original"]
    (site.folder / "small.json").write_text(json.dumps(profile))


def test_the_top_pages_of_two_servers(site: Site) -> None:
    """Both servers' counts are in each list, made smaller by Mez's own operators."""
    streams = ["recordings/web0", "recordings/web1"]
    _profiled(site, "top_pages.py", streams, "top_pages", "--windows", "30")
    server: list[str | Path] = [sys.executable, EXAMPLES / "top_pages.py", "server"]
    with (
        Program(site, *server, "log/web0", "--edge", site.link),
        Program(site, *server, "log/web1", "--edge", site.link),
        site.example("top_pages.py", "top", "log/*", "--profile", "small.json", "--latency", "5000") as top,
    ):
        said = top.waits_to_say(r"^ok, (data/top=\d+/threshold=\d+), 2 servers: (/\w+/\w+/\d+\.html, ){4}/")
        assert said


def test_clouds_of_a_lidar_are_thinned_by_the_programs_own_function(site: Site) -> None:
    """People and vehicles are found in what is left."""
    _profiled(site, "thin_clouds.py", ["recordings"], "find", "--clouds", "30")
    with (
        Program(site, sys.executable, EXAMPLES / "thin_clouds.py", "scan", "yard/lidar", "--edge", site.link),
        site.example(
            "thin_clouds.py", "find", "yard/lidar", "--profile", "small.json", "--latency", "5000"
        ) as found,
    ):
        said = found.waits_to_say(r"^ok, data/voxel=(\S+), (\d+) points: .*'person': [1-9]")
        assert 0 < float(said[1]) <= 1
        assert int(said[2]) > 500


def test_the_programs_say_what_they_take() -> None:
    """As the top of each describes it."""
    for name in ("top_pages.py", "thin_clouds.py"):
        text = (EXAMPLES / name).read_text()
        for part in re.findall(rf"python {name} (\w+)", text):
            assert f'"{part}"' in text
