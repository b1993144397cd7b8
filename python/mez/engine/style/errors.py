"""What can go wrong with styles."""

from mez.engine.errors import EngineError


class StyleError(EngineError):
    """A style cannot be trained. The message says why, and what to do."""
