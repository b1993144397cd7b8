"""Numbers of commands: read from options, and summed up."""

import argparse
import math
from collections.abc import Callable, Iterable


def number_within(least: float, most: float) -> Callable[[str], float]:
    """A converter for argparse that accepts numbers from `least` to `most`."""

    def number(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and least <= value <= most):
            raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {most:g}")
        return value

    return number


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Return the exact percentile (linear between neighbours), or `None` without values."""
    # Imported here, because `import mez` should not need NumPy.
    import numpy as np

    known = np.fromiter(values, dtype=np.float64)
    return float(np.percentile(known, percent)) if known.size else None
