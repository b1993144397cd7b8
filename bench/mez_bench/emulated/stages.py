"""What the workers of the emulated pipeline do. A pipeline file names it."""

import time

from mez.pipeline import Record


def identify(record: Record, ai_share: float) -> None:
    """Wait as long as identification takes, which the record says. It is the last stage and makes nothing."""
    work_s = float(record.headers["work-ms"]) / 1000
    time.sleep(work_s * ai_share)
    record.mark("ai.identified")
    time.sleep(work_s * (1 - ai_share))
