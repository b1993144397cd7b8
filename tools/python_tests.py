"""Runs the tests of the Python package, three files at once, because most tests wait.

The tests of one file run in one process, one after the other. If only a few tests failed, they run once more,
with nothing beside them. If all of them pass then, they are called UNSTEADY and do not count as failed: see
CONTRIBUTING.md. Arguments go to pytest.

    .venv/bin/python tools/python_tests.py [ARGUMENTS OF PYTEST]
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FAILED: Final = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
"""File in which pytest keeps the names of failed tests."""
SOME_FAILED: Final = 1
"""pytest's exit status if tests have failed, and there was no other error."""
AGAIN_MAX: Final = 3
"""The most tests that run again. If more failed, there is a common cause, not just a busy machine."""


def pytest(*words: str) -> int:
    """Run pytest, and return its status."""
    return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False).returncode


def main(words: list[str]) -> int:
    """Run all tests, and a few failed ones once more. Return the status of pytest."""
    FAILED.unlink(missing_ok=True)
    status = pytest("-n", "3", "--dist", "loadfile", *words)
    if status != SOME_FAILED:
        return status
    failed = list(json.loads(FAILED.read_text()))
    if len(failed) > AGAIN_MAX:
        return status
    print("running once more, with no other tests beside them:", *failed, flush=True)
    status = pytest(*failed)
    if status == 0:
        for test in failed:
            print(f"UNSTEADY {test}: failed beside others, passed alone; fix the test, or the bug behind it")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
