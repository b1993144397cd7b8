"""A participant of a DDS domain, with writers and readers of encoded samples.

A written sample is copied once, from the caller's parts into the library. A sample that is read is lent by
the library, until the `with` ends.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from xml.sax.saxutils import quoteattr

import numpy as np

from mez.bridge.dds import fence, types
from mez.bridge.dds import library as libraries
from mez.bridge.dds.cdr import Part, Struct
from mez.bridge.dds.described import FRAME_INFORMATION, FRAME_MAPPING
from mez.bridge.dds.errors import DdsError, RefusedError
from mez.bridge.dds.library import (
    Bytes,
    Counted,
    Descriptor,
    Incompatible,
    Iovec,
    Key,
    Library,
    Matched,
    Rejected,
    SampleInfo,
)
from mez.bridge.dds.neighbours import Neighbours

RECEIVE_BYTES: Final = 8 << 20
"""The requested receive buffer of each socket, in bytes. The system may give less (`net.core.rmem_max`)."""

WRITER_BYTES_MAX: Final = 64 << 20
"""The most unconfirmed bytes of a reliable writer. At this limit, it waits for its readers."""

TAKE_MAX: Final = 16
"""The most samples that are taken at once."""

KEYS_MAX: Final = 64
"""The most keys of a topic for which a reader keeps samples. Samples with further keys are rejected."""

HISTORY_BYTES_MAX: Final = 1 << 30
"""The most bytes of a topic's history: number of samples times the size of the largest one."""

_KEEP_LAST: Final = 0
_TRANSIENT_LOCAL: Final = 1
_IGNORE_OWN: Final = 1
_TOO_MANY_KEYS: Final = 1
_CDR1: Final = (ctypes.c_int16 * 1)(0)


@dataclass(frozen=True, slots=True)
class Network:
    """The network of a domain.

    Attributes:
        domain: The domain's number.
        interfaces: Names of interfaces. Nothing is sent or received on others.
        peers: Hosts that are contacted by unicast.
        is_multicast: Whether multicast is also used for discovery and data.
        sample_bytes_max: Larger samples are neither sent nor received.
    """

    domain: int
    interfaces: tuple[str, ...]
    peers: tuple[str, ...]
    is_multicast: bool
    sample_bytes_max: int

    def config(self) -> str:
        """The library's configuration."""
        interfaces = "".join(
            f'<NetworkInterface name={quoteattr(name)} multicast="{str(self.is_multicast).lower()}"/>'
            for name in self.interfaces
        )
        # Peers are contacted for ever: a robot may be switched on tomorrow.
        peers = "".join(f'<Peer Address={quoteattr(peer)} PruneDelay="inf"/>' for peer in self.peers)
        return (
            "<CycloneDDS><Domain><General>"
            f"<Interfaces>{interfaces}</Interfaces>"
            f"<AllowMulticast>{str(self.is_multicast).lower()}</AllowMulticast></General>"
            f'<Discovery><Peers AddLocalhost="{str(not self.is_multicast).lower()}">{peers}</Peers>'
            "</Discovery>"
            f"<Internal><MaxSampleSize>{self.sample_bytes_max} B</MaxSampleSize>"
            f'<SocketReceiveBufferSize max="{RECEIVE_BYTES} B"/>'
            f"<Watermarks><WhcHigh>{WRITER_BYTES_MAX} B</WhcHigh></Watermarks></Internal>"
            "<Tracing><Verbosity>warning</Verbosity><OutputFile>stderr</OutputFile></Tracing>"
            "</Domain></CycloneDDS>"
        )


@dataclass(frozen=True, slots=True)
class Qos:
    """The quality of service that a writer offers or a reader requests.

    Attributes:
        is_reliable: Lost samples are sent again, as long as they are in the history.
        depth: The size of the history: this many of the newest samples are kept.
        is_kept: Readers that come later get the history.
        lifespan_ns: Older samples are dropped. `None`: never.
        deadline_ns: The longest interval between samples. `None`: not stated.
        block_ns: How long a write may wait for readers that have not confirmed.
    """

    is_reliable: bool
    depth: int
    is_kept: bool = False
    lifespan_ns: int | None = None
    deadline_ns: int | None = None
    block_ns: int = 100_000_000


class Participant:
    """A participant of a domain, until it is closed. A process has one for each domain.

    While it is created, no other thread may open sockets: all new sockets are taken for the library's.

    Args:
        network: The network of the domain.
        partition: The partition of its writers and readers. Empty: the one that ROS 2 uses.

    Attributes:
        network: The network of the domain.
        neighbours: The other participants.

    Raises:
        DdsError: An interface does not exist, or the domain cannot be entered.
        MissingPackageError: The library is not installed.
    """

    def __init__(self, network: Network, partition: str = "") -> None:
        self.network = network
        self._library = libraries.load()
        interfaces, others = fence.indexes(network.interfaces), fence.open_sockets()
        made = self._library.dds_create_domain(network.domain, network.config().encode())
        self._domain = self._library.done(
            f"dds: domain {network.domain} on {', '.join(network.interfaces)}; check that these interfaces "
            "are up and have addresses",
            made,
        )
        try:
            self._entity = self._made(
                "participant", self._library.dds_create_participant(network.domain, None, None)
            )
            # Before there are readers and writers, so packets that came in the milliseconds before have no
            # effect.
            sockets = fence.open_sockets() - others
            fence.keep(sockets, interfaces)
            self.neighbours = Neighbours(self._library, self._entity, sockets, interfaces)
            with _qos(self._library) as qos:
                if partition:
                    self._library.dds_qset_partition1(qos, partition.encode())
                self._publisher = self._made(
                    "publisher", self._library.dds_create_publisher(self._entity, qos, None)
                )
                self._subscriber = self._made(
                    "subscriber", self._library.dds_create_subscriber(self._entity, qos, None)
                )
        except DdsError:
            self.close()
            raise

    def writer(self, topic: str, kind: Struct, qos: Qos) -> "Writer":
        """Write to a topic of DDS.

        Raises:
            DdsError: The library refuses.
        """
        return Writer(self._library, self._topic(topic, kind), self._publisher, kind, qos, self.network)

    def reader(self, topic: str, kind: Struct, qos: Qos) -> "Reader":
        """Read a topic of DDS. Samples of this participant itself are not read.

        For a type with a key, the reader is always best effort, even if `qos` is reliable.

        Raises:
            DdsError: The library refuses.
        """
        samples_max = max(qos.depth, HISTORY_BYTES_MAX // self.network.sample_bytes_max)
        made = self._topic(topic, kind)
        return Reader(self._library, made, self._subscriber, kind, qos, self._entity, samples_max)

    def close(self) -> None:
        """Leave the domain. Writers and readers end with it."""
        domain, self._domain = self._domain, 0
        if domain:
            self._library.dds_delete(domain)

    def _topic(self, name: str, kind: Struct) -> int:
        program = types.program(kind)
        described = Descriptor(
            size=program.size,
            align=program.align,
            name=types.dds_name(kind).encode(),
            count=program.count,
            words=(ctypes.c_uint32 * len(program.words))(*program.words),
            about=b"",
        )
        if program.key_at is not None:
            described.keys = (Key * 1)(Key(kind.key.encode(), program.key_at, 0))
            described.key_count = 1
        if kind is types.FRAME:
            described.flags = libraries.DESCRIBED
            described.type_information = _bytes(FRAME_INFORMATION)
            described.type_mapping = _bytes(FRAME_MAPPING)
        return self._made(
            f"topic {name}",
            self._library.dds_create_topic(self._entity, described, name.encode(), None, None),
        )

    def _made(self, what: str, code: int) -> int:
        return self._library.done(f"dds: {what}", code)


class Writer:
    """Writes samples of one type to one topic. Made by `Participant.writer`."""

    def __init__(
        self, library: Library, topic: int, publisher: int, kind: Struct, qos: Qos, network: Network
    ) -> None:
        self._library = library
        self._bytes_max = network.sample_bytes_max
        with _qos(library, qos, kind) as given:
            if qos.is_kept:
                # The history that later readers get.
                library.dds_qset_durability_service(given, 0, _KEEP_LAST, qos.depth, -1, -1, -1)
            made = library.dds_create_writer(publisher, topic, given, None)
        self._entity = library.done("dds: writer", made)
        self._type = ctypes.c_void_p()
        library.done("dds: type", library.dds_get_entity_sertype(self._entity, ctypes.byref(self._type)))

    @property
    def readers(self) -> int:
        """Number of known readers."""
        return _current(self._library.dds_get_publication_matched_status, self._entity)

    @property
    def misfits(self) -> int:
        """Number of readers since the start that requested a quality of service that is not offered."""
        return _misfits(self._library.dds_get_offered_incompatible_qos_status, self._entity)

    def write(self, parts: Sequence[Part]) -> None:
        """Write a sample, and copy it once.

        Args:
            parts: The encoded sample (`cdr.encode`).

        Raises:
            RefusedError: It has too many bytes (`too_large`), or readers have left so much unconfirmed that
                there is no room (`slow_reader`).
            DdsError: The library refuses it.
        """
        size = sum(len(part) for part in parts)
        if size > self._bytes_max:
            raise RefusedError(
                "too_large", f"a sample has {size} bytes; dds.sample_mib_max allows {self._bytes_max}"
            )
        # NumPy gives the address even of read-only memory.
        views = [np.frombuffer(part, np.uint8) for part in parts]
        places = (Iovec * len(views))(*[Iovec(view.ctypes.data, len(view)) for view in views])
        sample = self._library.ddsi_serdata_from_ser_iov(
            self._type, libraries.DATA, len(places), places, size
        )
        if not sample:
            raise DdsError("dds: a sample does not fit its type")
        # The library owns the sample from here on, even after an error.
        code = self._library.dds_writecdr(self._entity, sample)
        if code == libraries.TIMEOUT:
            raise RefusedError("slow_reader", "a reliable reader does not confirm the samples that it gets")
        self._library.done("dds: write", code)


class Reader:
    """Reads samples of one type from one topic. Made by `Participant.reader`; for one thread."""

    def __init__(
        self,
        library: Library,
        topic: int,
        subscriber: int,
        kind: Struct,
        qos: Qos,
        participant: int,
        samples_max: int,
    ) -> None:
        self._library = library
        if kind.key:
            # If there is no room for a sample of a reliable writer, the library tries for ever to store it,
            # and receives nothing meanwhile.
            qos = replace(qos, is_reliable=False)
        with _qos(library, qos, kind) as given:
            library.dds_qset_ignorelocal(given, _IGNORE_OWN)
            if kind.key:
                # Each key has its own history, and any program may invent keys.
                library.dds_qset_resource_limits(given, samples_max, KEYS_MAX, -1)
            made = library.dds_create_reader(subscriber, topic, given, None)
        self._entity = library.done("dds: reader", made)
        self._waiting = library.done("dds: waitset", library.dds_create_waitset(participant))
        condition = library.done(
            "dds: condition", library.dds_create_readcondition(self._entity, libraries.ANY_STATE)
        )
        library.done("dds: condition", library.dds_waitset_attach(self._waiting, condition, None))

    @property
    def writers(self) -> int:
        """Number of known writers."""
        return _current(self._library.dds_get_subscription_matched_status, self._entity)

    @property
    def lost(self) -> int:
        """Number of samples since the start that did not arrive completely."""
        status = Counted()
        self._library.dds_get_sample_lost_status(self._entity, ctypes.byref(status))
        return int(status.total)

    def rejected(self) -> tuple[int, bool]:
        """Number of samples since the last call that had no room, and whether keys were too many."""
        status = Rejected()
        self._library.dds_get_sample_rejected_status(self._entity, ctypes.byref(status))
        return int(status.change), status.reason == _TOO_MANY_KEYS

    @property
    def misfits(self) -> int:
        """Number of writers since the start that do not offer the requested quality of service."""
        return _misfits(self._library.dds_get_requested_incompatible_qos_status, self._entity)

    def wait(self, seconds: float) -> bool:
        """Wait for samples. Returns whether there are some.

        Raises:
            DdsError: The library refuses.
        """
        code = self._library.dds_waitset_wait(self._waiting, None, 0, int(seconds * 1e9))
        return self._library.done("dds: wait", code) > 0

    @contextmanager
    def take(self) -> Iterator[list[memoryview]]:
        """Take the available samples, the oldest first, as views that end with the `with`.

        Slices of these views and arrays over them end too: do not use them afterwards.

        Raises:
            DdsError: The library refuses.
        """
        taken = (ctypes.c_void_p * TAKE_MAX)()
        known = (SampleInfo * TAKE_MAX)()
        count = self._library.done(
            "dds: take",
            self._library.dds_takecdr(self._entity, taken, TAKE_MAX, known, libraries.ANY_STATE),
        )
        lent: list[_Lent] = []
        try:
            for at in range(count):
                if known[at].is_valid:
                    lent.append(_Lent(self._library, taken[at]))
                else:
                    # Not data, but for example a notice that a writer has ended.
                    self._library.ddsi_serdata_unref(taken[at])
            yield [each.view for each in lent]
        finally:
            for each in lent:
                each.give_back()


class _Lent:
    """A sample whose memory the library lends."""

    def __init__(self, library: Library, sample: int | None) -> None:
        self._library = library
        self._sample = sample
        self._place = Iovec()
        size = library.ddsi_serdata_size(sample)
        self._held = library.ddsi_serdata_to_ser_ref(sample, 0, size, ctypes.byref(self._place))
        memory = (ctypes.c_ubyte * self._place.size).from_address(self._place.base or 0)
        self.view = memoryview(memory).toreadonly().cast("B")

    def give_back(self) -> None:
        """End the view. Its slices must not be used any more, because the memory is reused."""
        self.view.release()
        self._library.ddsi_serdata_to_ser_unref(self._held, ctypes.byref(self._place))
        self._library.ddsi_serdata_unref(self._sample)


@contextmanager
def _qos(library: Library, qos: Qos | None = None, kind: Struct | None = None) -> Iterator[Any]:
    """Settings for the library, from `qos`."""
    made = library.dds_create_qos()
    try:
        if qos is not None:
            library.dds_qset_reliability(made, int(qos.is_reliable), qos.block_ns)
            library.dds_qset_history(made, _KEEP_LAST, qos.depth)
            library.dds_qset_data_representation(made, len(_CDR1), _CDR1)
            if qos.is_kept:
                library.dds_qset_durability(made, _TRANSIENT_LOCAL)
            if qos.lifespan_ns is not None:
                library.dds_qset_lifespan(made, qos.lifespan_ns)
            if qos.deadline_ns is not None:
                library.dds_qset_deadline(made, qos.deadline_ns)
        if kind is not None:
            told = types.user_data(kind)
            library.dds_qset_userdata(made, told, len(told))
        yield made
    finally:
        library.dds_delete_qos(made)


def _bytes(value: bytes) -> Bytes:
    """Bytes for the library. They must be constants of a module, which live long enough."""
    return Bytes(ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p), len(value))


def _current(ask: Any, entity: int) -> int:  # noqa: ANN401, a function of C
    status = Matched()
    ask(entity, ctypes.byref(status))
    return int(status.current)


def _misfits(ask: Any, entity: int) -> int:  # noqa: ANN401, a function of C
    status = Incompatible()
    ask(entity, ctypes.byref(status))
    return int(status.total)
