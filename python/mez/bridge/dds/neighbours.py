"""The other participants of a domain, and a bound on their number.

The library allocates memory for each participant that announces itself, and any program may announce any
number of participants. So if there are too many, the kernel drops packets of unknown participants: each
packet begins with the name of its participant.
"""

import ctypes
from collections.abc import Iterable
from typing import Final

from mez.bridge.dds import fence
from mez.bridge.dds.library import Library, SampleInfo

PARTICIPANTS_MAX: Final = 120
"""With this many participants, others are kept out.

The kernel's work for each packet and the size of the filter grow with this number. The filter has about
10 kB here. Some kernels allow 20 kB for a socket (`net.core.optmem_max`).
"""

NAME_BYTES: Final = 12
"""The size of a participant's name at the beginning of its packets."""

COUNTED_MAX: Final = 4 * PARTICIPANTS_MAX
"""The most participants that are counted. More can only join between two calls of `look`."""

_NAMES: Final = 0x7FFF0000 + 1
"""The topic in which the library lists the participants that it knows."""

_IS_THERE: Final = 16


class Neighbours:
    """The known participants, and whether others are kept out. For one thread.

    Args:
        library: The library.
        participant: The participant of this bridge.
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
        """Count participants, and keep others out or let them in. Returns whether this has changed.

        Raises:
            FenceError: The kernel refuses. Nothing has changed, and the next call tries again.
            DdsError: The library refuses.
        """
        known = self._known()
        self.count = len(known)
        if self.count < PARTICIPANTS_MAX:
            self._before = known
        closing = self.count >= PARTICIPANTS_MAX
        if closing == self.is_closed:
            return False
        # The filter may not have room for all that came since the previous call.
        names = [*dict.fromkeys((*self._before, *known))][:PARTICIPANTS_MAX]
        fence.keep(self._sockets, self._interfaces, names if closing else None)
        self.is_closed = closing
        return True

    def _known(self) -> list[bytes]:
        """The names of all present participants, with this one."""
        samples, told = self._samples, self._told
        # The library lends samples only if the list is empty.
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
