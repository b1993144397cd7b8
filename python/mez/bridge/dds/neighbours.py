"""The other participants of a domain, and a bound on their number.

The library takes memory for each participant that says that it is there, and anybody may say so, in any
number. So when there are too many, the kernel drops packets of all others than those that are known: each
packet begins with the name of its participant.
"""

import ctypes
from collections.abc import Iterable
from typing import Final

from mez.bridge.dds import fence
from mez.bridge.dds.library import Library, SampleInfo

PARTICIPANTS_MAX: Final = 120
"""At so many participants others are kept out.

What the kernel looks at for each packet grows with it, and so does the filter: about 10 kB at this number.
Some kernels give a socket 20 kB (`net.core.optmem_max`).
"""

NAME_BYTES: Final = 12
"""Of a participant's name at the beginning of its packets."""

COUNTED_MAX: Final = 4 * PARTICIPANTS_MAX
"""The most that are counted. More can come in only between two looks."""

_NAMES: Final = 0x7FFF0000 + 1
"""The topic in which the library lists the participants that it knows."""

_IS_THERE: Final = 16


class Neighbours:
    """Who is known, and whether others are kept out. For one thread.

    Args:
        library: The library.
        participant: Of this bridge.
        sockets: Descriptors of the library's sockets.
        interfaces: Numbers of the interfaces by which packets may come.

    Raises:
        DdsError: The library refuses.
    """

    def __init__(
        self, library: Library, participant: int, sockets: Iterable[int], interfaces: list[int]
    ) -> None:
        self._library = library
        self._sockets = tuple(sockets)
        self._interfaces = interfaces
        self._reader = library.done(
            "dds: participants", library.dds_create_reader(participant, _NAMES, None, None)
        )
        self._samples = (ctypes.c_void_p * COUNTED_MAX)()
        self._told = (SampleInfo * COUNTED_MAX)()
        self.is_closed = False
        self.count = 0
        self._before: list[bytes] = []

    def look(self) -> bool:
        """Count, and keep others out or let them in. Returns whether that has changed.

        Raises:
            FenceError: The kernel refuses. Nothing has changed, and the next look tries again.
            DdsError: The library refuses.
        """
        known = self._known()
        self.count = len(known)
        if self.count < PARTICIPANTS_MAX:
            self._before = known
        closing = self.count >= PARTICIPANTS_MAX
        if closing == self.is_closed:
            return False
        # Those that came since the look before may be more than the filter has room for.
        names = [*dict.fromkeys((*self._before, *known))][:PARTICIPANTS_MAX]
        fence.keep(self._sockets, self._interfaces, names if closing else None)
        self.is_closed = closing
        return True

    def _known(self) -> list[bytes]:
        """The names of all participants that are there, this one too."""
        samples, told = self._samples, self._told
        # The library lends samples only into an empty list.
        ctypes.memset(samples, 0, ctypes.sizeof(samples))
        read = self._library.dds_read(self._reader, samples, told, COUNTED_MAX, COUNTED_MAX)
        count = self._library.done("dds: participants", read)
        try:
            return [
                ctypes.string_at(samples[at] or 0, NAME_BYTES)
                for at in range(count)
                if told[at].is_valid and told[at].instance_state == _IS_THERE
            ]
        finally:
            if count:
                self._library.dds_return_loan(self._reader, samples, count)
