"""What can go wrong with a client of engines. Every message says what happened, and what to do."""

from mez.errors import Error


class OffloadError(Error):
    """A source cannot be read, or the engine, the device or the place for pictures is not there."""
