"""A group as its members use it: its settings, and reports on records."""

from typing import TYPE_CHECKING

from mez import _arguments as arguments
from mez import _native
from mez.errors import EndedError

if TYPE_CHECKING:
    # Name, records at once, whether taking the next record settles the previous one, whether records of a
    # camera are ordered, whether fresh records are waited for, `again_after` in seconds, tries, `open_max`.
    GroupAsk = tuple[str, int, bool, bool, bool, float | None, int | None, int | None]


class Settled:
    """The part of a frame that reports the result of the work in a group."""

    __slots__ = ()

    camera: str
    epoch: int
    sequence: int
    attempt: int
    _settler: _native.Subscription | None

    def done(self) -> None:
        """Report that the work on this record of a group is done. No member gets it again.

        The report is sent in the background; after a lost connection it is sent again. A second call has no
        effect. Outside groups, it has no effect either. With `at_once=1` you do not need it: when your loop
        asks for the next record, the previous one counts as done.

        Raises:
            EndedError: The frame was pickled. Report it in the process that received it.
        """
        self._settle(None)

    def failed(self, error: object) -> None:
        """Report that the work on this record of a group failed, and why.

        With `deliver="every"`, the record is given again at once, to another member if one is free. After
        `tries` tries it becomes a dead letter, with the last error (`mez groups`). With `deliver="newest"`,
        it becomes a dead letter at once. An exception that leaves the `with` block of the subscription calls
        this by itself.

        Args:
            error: The reason, for people: a text or an exception. The first 500 bytes are kept.

        Raises:
            EndedError: The frame was pickled. Report it in the process that received it.
        """
        why = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
        self._settle(why)

    def _settle(self, error: str | None) -> None:
        if self.attempt == 0:
            return
        if self._settler is None:
            raise EndedError(
                f"{self!r} was copied between processes; "
                "call done() or failed() in the process that received it"
            )
        self._settler.settle(self.camera, self.epoch, self.sequence, error)


def asked(
    group: str | None,
    *,
    ordered: str | None,
    fresh: bool,
    again_after: float | None,
    tries: int | None,
    open_max: int | None,
    at_once: int,
) -> "GroupAsk | None":
    """The checked settings of a group, for the native module."""
    if group is None:
        given = {"ordered": ordered, "again_after": again_after, "tries": tries, "open_max": open_max}
        for name, value in given.items():
            if value is not None:
                raise arguments.invalid(name, f"{name} needs a group; give group, or leave {name} out")
        if fresh:
            raise arguments.invalid("fresh", "fresh needs a group; give group, or leave fresh out")
        if at_once != 1:
            raise arguments.invalid("at_once", "at_once needs a group; give group, or leave at_once out")
        return None
    if ordered not in (None, "camera"):
        raise arguments.invalid("ordered", f'ordered is {ordered!r}; give "camera", or leave it out')
    several = arguments.whole("at_once", at_once, 1, 10_000)
    return (
        arguments.text("group", group),
        several,
        several == 1,
        ordered == "camera",
        bool(fresh),
        arguments.optional_number("again_after", again_after),
        None if tries is None else arguments.whole("tries", tries, 1, 100),
        None if open_max is None else arguments.whole("open_max", open_max, 1, 10_000),
    )
