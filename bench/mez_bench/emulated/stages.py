"""The function of the emulated pipeline's workers. The pipeline file names it."""

import time

from mez.pipeline import Record


def identify(record: Record, ai_share: float) -> None:
    """Wait for the time of identification that the record gives. The last stage, so it returns no record."""
    work_s = float(record.headers["work-ms"]) / 1000
    time.sleep(work_s * ai_share)
    record.mark("ai.identified")
    time.sleep(work_s * (1 - ai_share))
