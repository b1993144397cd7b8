"""`tools/rust_tests.py` with a cargo that compiles shell scripts: what it ends, and what it still prints."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines import until

TOOL = Path(__file__).parents[2] / "tools" / "rust_tests.py"


class Site:
    """A copy of the tool in a folder of its own, with programs of tests.

    Args:
        folder: The folder.
        programs: The shell script of each program.
    """

    def __init__(self, folder: Path, programs: dict[str, str]) -> None:
        self.folder = folder
        for name in ("bin", "tools", ".cache"):
            (folder / name).mkdir()
        self.tool = folder / "tools" / TOOL.name
        self.tool.write_text(TOOL.read_text())
        lines = []
        for name, text in programs.items():
            path = self._script(folder / name, text)
            target = {"name": name, "src_path": str(folder / f"{name}.rs")}
            manifest = str(folder / "Cargo.toml")
            message = {"executable": path, "profile": {"test": True}, "target": target}
            lines.append(json.dumps(message | {"manifest_path": manifest}))
        (folder / "messages").write_text("\n".join(lines) + "\n")
        self._script(
            folder / "bin" / "cargo",
            f'case "$*" in *--no-run*) cat {folder}/messages ;; *) echo documented ;; esac',
        )

    def started(self, *words: str) -> subprocess.Popen[str]:
        """The tool, one program at a time."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            [sys.executable, str(self.tool), "--jobs", "1", *words],
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def has(self, name: str) -> bool:
        """Whether a program has left a file."""
        return (self.folder / name).exists()

    def _script(self, path: Path, text: str) -> str:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that only waits to be noticed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_command_beside_that_fails_hides_nothing(tmp_path: Path) -> None:
    """Failed programs are named and the documented tests run. The status is that of a failure."""
    site = Site(tmp_path, {"a": "exit 3", "b": "true"})
    tool = site.started("--meanwhile", "sh -c 'echo no space; exit 7'")
    said, _ = tool.communicate(timeout=60)
    assert tool.returncode == 1
    for line in ("FAILED a.rs (status 3)", "documented", "no space", "(status 7)", "2 programs of tests, 1 "):
        assert line in said


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_tool_that_is_ended_ends_what_it_started_and_begins_nothing_more(
    tmp_path: Path, number: int, status: int
) -> None:
    """The command beside ends with its children. The program that runs is waited for, and the last."""
    first = f"touch first; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    site = Site(tmp_path, {"a": first, "b": "touch second", "c": "touch third"})
    tool = site.started("--meanwhile", f"sh -c 'sleep 600 & echo $! >{tmp_path}/pid; wait'")
    try:
        until(lambda: site.has("first"), bool, "the first program runs")
        until(lambda: site.has("pid") and (tmp_path / "pid").read_text(), bool, "the command runs")
        beside = int((tmp_path / "pid").read_text())
        tool.send_signal(number)
        until(lambda: not is_alive(beside), bool, "what the command has started has ended")
    finally:
        (tmp_path / "go").touch()
        tool.communicate(timeout=60)
    assert tool.returncode == status
    assert not site.has("second")


def failing(name: str, condition: str) -> str:
    """A program with one test, which fails if this is so. It prints what libtest prints."""
    said = f"test {name} ... FAILED\\n\\nfailures:\\n\\nfailures:\\n    {name}\\n\\ntest result: FAILED\\n"
    return f"echo $* >>runs; if {condition}; then printf '{said}'; exit 101; fi"


def test_a_test_that_passes_alone_is_named_and_lets_the_rest_pass(tmp_path: Path) -> None:
    """It runs again by its name, after all others. What fails again, or with many others, has failed."""
    first = "[ $(wc -l <runs) = 1 ]"
    for folder, programs, status, last in (
        ("once", {"a": failing("part::one", first)}, 0, "0 failed, 1 tests unsteady"),
        ("always", {"a": failing("part::one", "true")}, 1, "1 failed, 0 tests unsteady"),
        ("killed", {"a": "kill -9 $$"}, 1, "1 failed, 0 tests unsteady"),
        ("many", {n: failing("one", "! [ -e again ]") for n in "abcd"}, 1, "4 failed, 0 tests unsteady"),
    ):
        (tmp_path / folder).mkdir()
        site = Site(tmp_path / folder, programs)
        tool = site.started()
        said, _ = tool.communicate(timeout=60)
        assert (tool.returncode, last in said) == (status, True), said
        assert ("UNSTEADY a.rs part::one" in said) == (folder == "once")
        runs = (site.folder / "runs").read_text().splitlines() if site.has("runs") else []
        again = [words for words in runs if "--exact part::one" in words]
        assert len(again) == (1 if folder in ("once", "always") else 0)
