"""What can go wrong with a client of engines. Every message says what happened, and what to do."""

from mez.errors import Error


class OffloadError(Error):
    """A source cannot be read, or the engine, its processor or the folder for pictures cannot be used."""
