"""Pictures painted in the style of another one: the network, and how it is trained (docs/offload.md).

| module | the question it answers |
| --- | --- |
| `painter` | how is a picture painted? |
| `network` | what is computed, and how is it written as a file? |
| `loss`, `train` | how does a network learn a style? |
| `picture` | where does the style that comes with Mez come from? |
| `flicker` | how much does a style flicker? |
| `command` | what do people type? |
"""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `mez style` and return its exit code: 0 if it did what was asked, 1 if it could not.

    Args:
        arguments: The words after `mez style`. `None` takes them from the process.
    """
    import sys

    # Imported here, because programs that paint do not need the command.
    try:
        from mez.engine.style.command import main as command
    except ImportError as error:
        print(f"mez style needs more packages ({error}); run: pip install 'mez[onnx]'", file=sys.stderr)
        return 1

    return command(sys.argv[1:] if arguments is None else arguments)
