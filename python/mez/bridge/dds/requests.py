"""Changes the contract of a stream, if a program in DDS requests one that the bridge's file names."""

from collections.abc import Mapping
from typing import Final

from mez.bridge.dds import cdr, names, types
from mez.bridge.dds.board import StreamBoard, StreamStatus
from mez.bridge.dds.domain import Participant, Qos
from mez.bridge.dds.errors import RefusedError
from mez.bridge.dds.outward import OutReader
from mez.bridge.reader import LOOK_S, Reader
from mez.errors import Error

CHANGE_S: Final = 1.0
"""The shortest time between changes, in seconds, because each change subscribes again at the edge."""

REQUESTS_MAX: Final = 10
"""The most requests that wait. The newest ones are kept."""


class RequestReader(Reader):
    """Reads the request topic, in its own thread.

    Args:
        topic: The topic's name in ROS 2.
        streams: The streams that offer contracts, by name.
        participant: The participant of the topic's domain.
        board: Counts, and prints lines for people.
    """

    def __init__(
        self, topic: str, streams: Mapping[str, OutReader], participant: Participant, board: StreamBoard
    ) -> None:
        super().__init__(board.name, board)
        self._streams = streams
        self._counts = board
        # Without the writers' history: the usual writer of ROS 2 keeps none, and would not fit.
        qos = Qos(is_reliable=True, depth=REQUESTS_MAX)
        self._samples = participant.reader(names.dds_topic(topic), types.STRING, qos)

    def open(self) -> None:
        """There is no connection to open."""

    def leave(self) -> None:
        """There is no connection to close."""

    def read(self) -> None:
        """Take requests until the bridge is to end."""
        while not self._over.is_set():
            if not self._samples.wait(LOOK_S):
                continue
            with self._samples.take() as samples:
                wanted = dict(filter(None, map(self._request, samples)))
            for stream, contract in wanted.items():
                if self._streams[stream].ask(contract):
                    self._counts.tell(f"out.{stream}: the contract {contract} was requested")
            self._over.wait(CHANGE_S)

    def status(self) -> StreamStatus:
        """How it does."""
        return self._counts.status(peers=self._samples.writers, misfits=self._samples.misfits)

    def _request(self, sample: memoryview) -> tuple[str, str] | None:
        """The requested stream and contract. `None` if they do not exist, which is counted."""
        try:
            text: str = cdr.decode(types.STRING, sample)["data"]
            stream, _, contract = text.partition(" ")
            known = self._streams.get(stream)
            if known is None or contract not in known.offers:
                offered = "; ".join(f"{name} {' | '.join(of.offers)}" for name, of in self._streams.items())
                raise RefusedError("request", f"{text[:80]!r} is not offered; request one of: {offered}")
        except Error as error:
            self._counts.refuse("a request", error)
            return None
        self._counts.copied(len(sample))
        return stream, contract
