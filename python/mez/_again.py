"""Runs the command `mez` for the native code that starts it again.

It is a script, not a module of the package: the package imports NumPy, and without NumPy the edge's decoder
processes need a fraction of the time and the memory.
"""

import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location


def main(native: str, *words: str) -> int:
    """Run the command line `words` with the native module at the path `native`."""
    loader = ExtensionFileLoader("_native", native)
    spec = spec_from_file_location("_native", native, loader=loader)
    assert spec is not None, "a loader was given"
    module = module_from_spec(spec)
    loader.exec_module(module)
    itself = sys.orig_argv[: len(sys.orig_argv) - len(words)]
    status: int = module.cli_main(["mez", *words], itself)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
