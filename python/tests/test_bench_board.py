"""The emulated board of `mez bench dds`: what 7-Zip says, and a quota that the kernel holds."""

import subprocess
import sys

import pytest

from mez_bench import board
from mez_bench.errors import ExperimentError

_SAID = """\
Dict     Speed Usage    R/U Rating  |      Speed Usage    R/U Rating
         KiB/s     %   MIPS   MIPS  |      KiB/s     %   MIPS   MIPS

22:       4719   100   4591   4591  |      46420   100   3964   3963
23:       4311   100   4393   4393  |      45581   100   3946   3946
----------------------------------  | ------------------------------
Avr:      4515   100   4492   4492  |      46000   100   3955   3954
Tot:             100   4223   4223
"""


def test_the_ratings_of_both_directions_are_read() -> None:
    """An output without averages is an error that shows it."""
    assert board.ratings(_SAID) == (4492.0, 3954.0)
    with pytest.raises(ExperimentError, match="no averages:\nnothing"):
        board.ratings("nothing")


@pytest.mark.skipif(board.quota_unavailable() is not None, reason=f"{board.quota_unavailable()}")
def test_a_process_under_a_quota_gets_no_more_processor_time() -> None:
    """It works for two seconds, and gets a fifth of a core; the group is gone afterwards."""
    program = "import sys, time; sys.stdin.readline(); end = time.monotonic() + 2\n"
    program += "while time.monotonic() < end: pass\nprint(time.process_time())"
    with board.quota(0.2) as group:
        words = [sys.executable, "-c", program]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            (group / "cgroup.procs").write_text(str(process.pid))
            said, _ = process.communicate("\n", timeout=60)
    assert 0 < float(said) < 1.0
    assert not group.exists()
