"""What can go wrong with an engine. Every message says what happened, and after a semicolon what to do."""

from mez.errors import Error


class EngineError(Error):
    """An engine cannot be loaded or run: its name, its file, its device, or its rights."""


class AnswerRefusedError(Error):
    """The result of an engine is not an answer to its frame. The engine continues with the next frame."""
