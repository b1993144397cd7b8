"""Errors of profiling. Every message says what happened and what to do."""

from mez.errors import Error


class ProfileError(Error):
    """A profile could not be made, read or used."""


class VideoError(ProfileError):
    """A video cannot be used."""


class AppError(ProfileError):
    """An application cannot be loaded, failed on a frame, or did not return boxes."""


class RungError(ProfileError):
    """A rung or a family of rungs does not exist, or cannot be made here."""


class FormatError(ProfileError):
    """A file is not a profile, or is of another version."""


class RecordError(ProfileError):
    """A recorded stream cannot be used, or a record cannot be made at a rung."""
