"""The experiments, which lie beside this package in a checkout of Mez and are not installed with it."""

import importlib
import sys
from pathlib import Path
from types import ModuleType


def experiments(module: str) -> ModuleType | None:
    """Load a module of the experiments; return `None` if this is an installed package.

    Args:
        module: Its name, such as `mez_bench.cli`.
    """
    bench = Path(__file__).resolve().parents[2] / "bench"
    if not (bench / "mez_bench").is_dir():
        return None
    if str(bench) not in sys.path:
        sys.path.insert(0, str(bench))
    return importlib.import_module(module)
