"""Writes the log of this process to a file while a demo runs."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Send Mez's log of this process to a file: on the terminal it would disturb the table."""
    log = logging.getLogger("mez")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    propagated, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagated
        handler.close()
