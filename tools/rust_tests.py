"""Compiles the tests of all Rust crates, and runs several test programs at once, because most tests wait.

`cargo test` runs one program after the other. This tool prints the whole output of a program when it has
ended, in the form of `cargo test`. When all programs have ended, it names those that failed, and ends with
status 1 if there are any. If only a few tests failed, each of them runs once more, with nothing beside it. A
test that passes then is called UNSTEADY and does not count as failed: see CONTRIBUTING.md. Arguments after
`--` go to cargo, such as `--features mez-cli/bench`.

    tools/rust_tests.py [--jobs N] [--meanwhile COMMAND] [-- ARGUMENTS OF CARGO]
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
JOBS: Final = 3
"""Programs that run at once. Each runs as many tests at once as there are processors."""

ADVICE: Final = "failed beside other tests, passed alone; fix the test, or the bug that it has found"
AGAIN_MAX: Final = 3
"""The most tests that run again. If more failed, there is a common cause, not just a busy machine."""

LONG: Final = (
    "seeds",
    "passed_through",
    "doctor",
    "source",
    "shared_pictures",
    "renewal",
    "commands",
    "logs",
    "knobs",
)
"""Programs that run longest. They start first, so that none of them runs alone at the end."""


@dataclass(frozen=True)
class Program:
    """A program of tests."""

    name: str
    """The target's name, such as `seeds`."""
    source: Path
    """Its source file."""
    folder: Path
    """The folder of its crate, in which it runs."""
    path: str


@dataclass(frozen=True)
class Ended:
    """The result of a program."""

    program: Program
    seconds: float
    status: int
    output: str


def compiled(words: Sequence[str]) -> list[Program]:
    """Compile, and return the test programs. Ends the process if a crate does not compile."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]
    print(*command, *words, flush=True)
    cargo = subprocess.run([*command, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if cargo.returncode != 0:
        sys.exit(cargo.returncode)
    programs = []
    for line in cargo.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message.get("profile", {}).get("test"):
            target, manifest = message["target"], Path(message["manifest_path"])
            source = Path(target["src_path"])
            programs.append(Program(target["name"], source, manifest.parent, message["executable"]))
    return sorted(programs, key=lambda program: program.name not in LONG)


def run(program: Program, *words: str) -> Ended:
    """Run a program with these further arguments, and return its result."""
    begun = time.monotonic()
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(program.folder)}
    test = subprocess.run(
        [program.path, "--color", "never", *words],
        cwd=program.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return Ended(program, time.monotonic() - begun, test.returncode, test.stdout)


def show(ended: Ended, left: int) -> None:
    """Print the output of a program. `left`: number of programs that have not ended."""
    source = ended.program.source.relative_to(ROOT)
    print(f"     Running {source} ({ended.seconds:.1f} s, {left} left)", flush=True)
    print(ended.output.rstrip(), flush=True)


def run_all(programs: Sequence[Program], jobs: int) -> list[Ended]:
    """Run all programs, `jobs` at once, and return those that failed."""
    failed = []
    pool = ThreadPoolExecutor(jobs)
    try:
        open_: set[Future[Ended]] = {pool.submit(run, program) for program in programs}
        while open_:
            done, open_ = wait(open_, return_when=FIRST_COMPLETED)
            for future in done:
                ended = future.result()
                show(ended, len(open_))
                if ended.status != 0:
                    failed.append(ended)
    except BaseException:
        # Ctrl-C: start no other program.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return failed


def tests_that_failed(ended: Ended) -> list[str]:
    """Return the names of a program's failed tests. Empty: it ended before it could print them."""
    _, found, names = ended.output.rpartition("\nfailures:\n")
    return re.findall(r"^    (\S+)$", names, re.MULTILINE) if found else []


def run_again(failed: Sequence[Ended]) -> tuple[list[Ended], list[str]]:
    """Run failed tests again, one after the other, if there are at most `AGAIN_MAX`.

    Returns:
        The programs that failed again, and the unsteady tests.
    """
    tests = {ended.program.path: tests_that_failed(ended) for ended in failed}
    if sum(len(names) or AGAIN_MAX + 1 for names in tests.values()) > AGAIN_MAX:
        return list(failed), []
    still, unsteady = [], []
    for ended in failed:
        again = [run(ended.program, "--exact", name) for name in tests[ended.program.path]]
        for one in again:
            show(one, 0)
        if any(one.status != 0 for one in again):
            still.append(ended)
        else:
            source = ended.program.source.relative_to(ROOT)
            unsteady += [f"{source} {name}" for name in tests[ended.program.path]]
    return still, unsteady


def start(command: str, log: Path) -> subprocess.Popen[bytes]:
    """Start a command at the lowest priority, with its output in a file, in a process group of its own."""
    with log.open("wb") as output:
        words = ["nice", "-n", "19", *shlex.split(command)]
        return subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def end(beside: subprocess.Popen[bytes]) -> None:
    """End a command that was started, with its child processes."""
    if beside.poll() is None:
        os.killpg(beside.pid, signal.SIGTERM)
        beside.wait()


def terminated(number: int, _: object) -> None:
    """Raise an exception, so that started processes are ended."""
    sys.exit(128 + number)


def main() -> int:
    """Compile and run all tests of the Rust crates, documentation tests included."""
    description, _, usage = (__doc__ or "").partition("\n\n    ")
    parser = argparse.ArgumentParser(description=description, epilog=usage)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"programs at once (default: {JOBS})")
    parser.add_argument("--meanwhile", help="a command that runs beside the tests, once they are compiled")
    parser.add_argument("words", nargs="*", help="arguments of cargo test")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, terminated)
    programs = compiled(arguments.words)
    log = ROOT / ".cache" / "meanwhile.log"
    beside = start(arguments.meanwhile, log) if arguments.meanwhile else None
    begun, beside_status = time.monotonic(), 0
    try:
        failed = run_all(programs, arguments.jobs)
        if beside is not None:
            beside_status = beside.wait()
        failed, unsteady = run_again(failed)
    finally:
        if beside is not None:
            end(beside)
    documented = subprocess.run(
        ["cargo", "test", "--workspace", "--doc", *arguments.words], cwd=ROOT, check=False
    )
    for test in unsteady:
        print(f"UNSTEADY {test}: {ADVICE}")
    for ended in failed:
        print(f"FAILED {ended.program.source.relative_to(ROOT)} (status {ended.status})")
    if beside_status != 0:
        print(log.read_text(errors="replace"))
        print(f"FAILED {arguments.meanwhile} (status {beside_status})")
    seconds = time.monotonic() - begun
    print(
        f"rust: {len(programs)} programs of tests, {len(failed)} failed, {len(unsteady)} tests unsteady, "
        f"{seconds:.0f} s",
        flush=True,
    )
    return 1 if failed or beside_status != 0 else documented.returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
