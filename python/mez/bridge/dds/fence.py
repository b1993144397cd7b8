"""Restricts sockets to some interfaces of this host.

The library sends only on the configured interfaces, but listens on all interfaces. So each socket gets a
filter in the kernel, which drops packets from other interfaces. Packets that this host sends to itself always
come from loopback.
"""

import ctypes
import errno
import os
import socket
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from mez.bridge.dds.errors import DdsError, FenceError

LOOPBACK: Final = "lo"

INTERFACES_MAX: Final = 64
"""The most interfaces: a jump within a filter spans at most 255 instructions."""

# Constants of Linux: `linux/filter.h` and `asm-generic/socket.h`.
_ATTACH: Final = 26
_LOAD_WORD: Final = 0x20
_STORE: Final = 0x02
_LOAD_STORED: Final = 0x60
_JUMP_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_INTERFACE: Final = 0xFFFFF000 + 8
_NAME_AT: Final = 8 + 8
"""The offset of the participant's name: after the UDP header and the start of each DDS packet."""

_NAME_WORDS: Final = 3

_DROP: Final = 0
_WHOLE: Final = 0xFFFFFFFF

_SOCKETS: Final = Path("/proc/self/fd")


def indexes(names: Iterable[str]) -> list[int]:
    """The numbers of the interfaces, and of loopback.

    Raises:
        DdsError: An interface does not exist.
    """
    found = {socket.if_nametoindex(LOOPBACK)}
    for name in names:
        try:
            found.add(socket.if_nametoindex(name))
        except OSError as error:
            known = ", ".join(other for _, other in socket.if_nameindex())
            raise DdsError(f"dds.interfaces: there is no interface {name}; give some of {known}") from error
    return sorted(found)


def open_sockets() -> set[int]:
    """Descriptors of the open datagram sockets of this process."""
    return set(_datagram_sockets())


def keep(descriptors: Iterable[int], interfaces: list[int], names: Sequence[bytes] | None = None) -> None:
    """Let sockets receive only from these interfaces.

    Args:
        descriptors: The sockets.
        interfaces: Numbers of interfaces.
        names: Only from these participants, each with its name of 12 bytes. `None`: from all.

    Raises:
        FenceError: The kernel refuses. Some sockets may have the new filter, and others the previous one.
    """
    code = _program(interfaces, names)
    memory = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    program = struct.pack("HP", len(code), ctypes.addressof(memory))
    for descriptor in descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as same:
            try:
                same.setsockopt(socket.SOL_SOCKET, _ATTACH, program)
            except OSError as error:
                advice = (
                    "raise net.core.optmem_max (sysctl)"
                    if error.errno in (errno.ENOMEM, errno.ENOBUFS)
                    else "use a kernel with socket filters"
                )
                raise FenceError(
                    f"dds: the kernel refuses a filter of {len(code)} instructions for a socket "
                    f"({error}); {advice}"
                ) from error


def _program(interfaces: list[int], names: Sequence[bytes] | None) -> list[tuple[int, int, int, int]]:
    """The instructions of a filter."""
    count = len(interfaces)
    code = [(_LOAD_WORD, 0, 0, _INTERFACE)]
    # Each instruction jumps over the following ones, and over the drop.
    code += [(_JUMP_IF_EQUAL, count - at, 0, number) for at, number in enumerate(interfaces)]
    code.append((_RETURN, 0, 0, _DROP))
    if names is not None:
        # In the kernel, a load from the packet takes about a dozen instructions, and a stored value one.
        for at in range(_NAME_WORDS):
            code += [(_LOAD_WORD, 0, 0, _NAME_AT + 4 * at), (_STORE, 0, 0, at)]
    for name in names or ():
        # If a word differs, jump to the next name.
        for at, word in enumerate(struct.unpack(f"!{_NAME_WORDS}I", name)):
            code += [(_LOAD_STORED, 0, 0, at), (_JUMP_IF_EQUAL, 0, 5 - 2 * at, word)]
        code.append((_RETURN, 0, 0, _WHOLE))
    code.append((_RETURN, 0, 0, _WHOLE if names is None else _DROP))
    return code


def _datagram_sockets() -> Iterator[int]:
    for entry in list(_SOCKETS.iterdir()):
        descriptor = int(entry.name)
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as same:
                is_datagram = same.type == socket.SOCK_DGRAM and same.family != socket.AF_UNIX
        except OSError:
            # It was closed meanwhile.
            continue
        if is_datagram:
            yield descriptor
