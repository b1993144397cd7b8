"""Runs the tests of the Python package, three files at once, because most tests wait.

The tests of one file run in one process, one after the other. Where only a few tests have failed, they run
once more, with nothing beside them. If all of them pass then, they are called UNSTEADY and do not count as
failed: see CONTRIBUTING.md. Arguments go to pytest.

    .venv/bin/python tools/python_tests.py [ARGUMENTS OF PYTEST]
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FAILED: Final = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
"""Where pytest keeps the names of the tests that failed."""
SOME_FAILED: Final = 1
"""The status with which pytest says that tests have failed, and nothing else was wrong."""
AGAIN_MAX: Final = 3
"""The most tests that run again. More of them fail for one reason, and not because the machine was busy."""


def pytest(*words: str) -> int:
    """Run pytest, and return its status."""
    return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False).returncode


def main(words: list[str]) -> int:
    """Run all tests, and few that failed once more. Returns the status of pytest."""
    FAILED.unlink(missing_ok=True)
    status = pytest("-n", "3", "--dist", "loadfile", *words)
    if status != SOME_FAILED:
        return status
    failed = list(json.loads(FAILED.read_text()))
    if len(failed) > AGAIN_MAX:
        return status
    print("once more, with nothing beside them:", *failed, flush=True)
    status = pytest(*failed)
    if status == 0:
        for test in failed:
            print(f"UNSTEADY {test}: failed beside others, passed alone; mend the test, or what it has found")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
