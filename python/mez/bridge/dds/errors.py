"""What can go wrong with a bridge to DDS. Messages say what happened, and after a semicolon what to do."""

from mez.errors import Error


class DdsError(Error):
    """DDS refuses something, or cannot be used."""


class FenceError(DdsError):
    """The kernel refuses a filter for a socket."""


class EncodingError(DdsError, ValueError):
    """A sample or a value does not fit its type.

    Attributes:
        field: The field at fault, such as `header.frame_id`; empty: the sample as a whole.
    """

    def __init__(self, field: str, says: str) -> None:
        super().__init__(f"{field}: {says}" if field else says)
        self.field = field


class RefusedError(DdsError):
    """A frame or a sample cannot be copied, because of its content.

    Attributes:
        reason: A word to count it by.
    """

    def __init__(self, reason: str, says: str) -> None:
        super().__init__(says)
        self.reason = reason
