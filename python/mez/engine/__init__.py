"""`mez.engine`: engines, which make pictures of a camera's frames for its display (docs/offload.md).

```python
import mez.engine

paint = mez.engine.load("style")
painted = paint(image)                                  # pixels (rows, columns, 3), uint8, BGR
mez.engine.run("style", "phone/*", edge="edge.local")   # answers frames, until Ctrl-C
```

| module | the question it answers |
| --- | --- |
| `engines` | which engines are there, and how are they loaded? |
| `answers` | is what an engine returned an answer? |
| `loop` | which frame is next, and how is it answered? |
| `worker`, `supervisor` | how are engines run as processes, and restarted? |
| `command` | what do people type? |
| `style` | how are styles painted and trained? |
"""

from collections.abc import Sequence

from mez.engine.answers import picture
from mez.engine.engines import DEVICES, Engine, Image, load
from mez.engine.errors import AnswerRefusedError, EngineError
from mez.engine.loop import Counts, run

__all__ = [
    "DEVICES",
    "AnswerRefusedError",
    "Counts",
    "Engine",
    "EngineError",
    "Image",
    "load",
    "main",
    "picture",
    "run",
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `mez engine` and return its exit code: 0 if it did what was asked, 1 if it could not.

    Args:
        arguments: The words after `mez engine`. `None` takes them from the process.
    """
    import sys

    # Imported here, because programs that load an engine do not need the command.
    from mez.engine.command import main as command

    return command(sys.argv[1:] if arguments is None else arguments)
