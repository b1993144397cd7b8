"""`mez profile`: measures how many bytes each rung takes, and how accurate a detector stays on it.

| module | the question it answers |
| --- | --- |
| `command`, `console` | what can be asked for, and what is shown meanwhile? |
| `make` | what is measured, in which order? |
| `families`, `search` | which rungs are there, and which of them are worth measuring? |
| `crew`, `store` | who measures them, and what is known already? |
| `footage`, `coding`, `measure` | what does a rung make of a camera's frames? |
| `app` | what does the application find on them? |
| `score`, `interval`, `judge` | how well does that agree with the frames as published? |
| `document` | how is it written down? |
| `tables` | what have others measured? |
| `report/` | what do people look at? |
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
    # Not above: `mez --help` should not wait for OpenCV.
    from mez.profile.command import run

    return run(sys.argv[1:] if arguments is None else arguments)
