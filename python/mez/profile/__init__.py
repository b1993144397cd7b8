"""`mez profile`: measures how many bytes each rung takes, and how accurate a detector stays on it.

| module | the question it answers |
| --- | --- |
| `command`, `console` | what are the options, and how is progress shown? |
| `make` | what is measured, in which order? |
| `families`, `search` | which rungs are there, and which of them are worth measuring? |
| `crew`, `store` | which processes measure them, and what is in the cache? |
| `footage`, `coding`, `measure` | how does a rung change a camera's frames? |
| `app` | what does the application find in them? |
| `score`, `interval`, `judge` | how well do the results agree with those on published frames? |
| `document` | what is the format of a profile? |
| `tables` | how are published tables imported? |
| `report/` | how is the report made? |
"""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `mez profile` and return its exit code: 0 if it did what was asked, 1 if it could not.

    Args:
        arguments: The words after `mez profile`. `None` takes them from the process.
    """
    import sys

    from mez.apps import packages

    missing = packages.missing()
    if missing:
        print(f"mez profile: {missing}", file=sys.stderr)
        return 1
    # Imported here, because `mez --help` should not wait for OpenCV.
    from mez.profile.command import run

    return run(sys.argv[1:] if arguments is None else arguments)
