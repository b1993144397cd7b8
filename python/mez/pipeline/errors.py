"""What can go wrong with a pipeline. Every message says what happened, and after a semicolon what to do."""

from mez.errors import Error


class PipelineError(Error):
    """A pipeline cannot do what was asked."""


class FileError(PipelineError):
    """A pipeline file cannot be used. The message has a line for each fault, with its field.

    Attributes:
        faults: Each fault: the field, such as `stage.detect.workers`, and a sentence.
    """

    def __init__(self, path: object, faults: list[tuple[str, str]]) -> None:
        lines = [f"{field}: {says}" if field else says for field, says in faults]
        super().__init__("\n".join(f"{path}: {line}" for line in lines))
        self.faults = faults
        self.field = faults[0][0] or None


class StageError(PipelineError):
    """A stage's function cannot be loaded, or returned something that is not a record."""


class BusError(PipelineError):
    """A bus refuses: rights, a name, a setting. Trying again without a change does not help."""


class BusRefusedError(BusError):
    """A bus refuses this program: for example, a right is missing, or a password is wrong.

    The message says what to change at the bus. After this change, trying again helps.
    """


class BusAwayError(BusError):
    """A bus cannot be reached now, or did not confirm in time. Trying again may help."""


class BusUnsureError(BusAwayError):
    """A bus answers, but does not have the requested information now. Trying again may help."""


class RecordTooLargeError(BusError):
    """A record has more bytes than its bus takes. Nothing of it was sent."""


class EventsError(PipelineError):
    """Events of a pipeline cannot be read, or there are none."""
