"""The status of a bridge: a line every few seconds, for people or as JSON."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class StreamStatus:
    """The status of a stream.

    Attributes:
        records: Records that Kafka has confirmed since the start.
        bytes: Their bytes.
        unconfirmed: Records that were sent and are not confirmed.
        waiting: Records that wait at the edge. `None`: unknown, or this stream never waits.
        skipped: Frames that did not cross the link, or were skipped for newer ones.
        dead: Records that Kafka has refused permanently.
    """

    records: int = 0
    bytes: int = 0
    unconfirmed: int = 0
    waiting: int | None = None
    skipped: int = 0
    dead: int = 0


@dataclass(slots=True)
class Status:
    """The status of a bridge.

    Attributes:
        bridge: Its name.
        state: `starting`, `running`, `draining` or `ended`.
        at_ns: The time of this status, in nanoseconds since 1970-01-01 UTC.
        records_per_s: Confirmed records per second since the previous line.
        bytes_per_s: Confirmed bytes per second since the previous line.
        records: Confirmed records since the start.
        bytes: Confirmed bytes since the start.
        waiting: Records that wait at the edge. `None`: unknown.
        unconfirmed: Records that were sent and are not confirmed.
        lost: Records that the edge dropped before it gave them.
        dead: Records that Kafka has refused permanently.
        kafka: `ok`, or why nothing is confirmed.
        streams: The same by stream; `results` and `events` are among them.
    """

    bridge: str
    state: str = "starting"
    at_ns: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    records: int = 0
    bytes: int = 0
    waiting: int | None = None
    unconfirmed: int = 0
    lost: int = 0
    dead: int = 0
    kafka: str = "ok"
    streams: dict[str, StreamStatus] = field(default_factory=dict)

    def line(self) -> str:
        """For people."""
        parts = [
            f"{self.records_per_s:.4g} records/s",
            f"{self.bytes_per_s / 1e6:.4g} MB/s",
            f"waiting {'?' if self.waiting is None else self.waiting}",
            f"unconfirmed {self.unconfirmed}",
            f"lost {self.lost}",
            f"dead {self.dead}",
        ]
        return ", ".join(parts) + ("" if self.kafka == "ok" else f"; Kafka: {self.kafka}")
