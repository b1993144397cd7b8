"""What a bridge says of itself: a line each few seconds, for people or as JSON."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class StreamStatus:
    """How a stream does.

    Attributes:
        records: Records that Kafka has confirmed since the start.
        bytes: Their bytes.
        unconfirmed: Records that were sent and are not confirmed.
        waiting: Records that wait at the edge; `None`: nobody knows, or nothing waits by design.
        skipped: Frames that did not cross the link, or were passed over for newer ones.
        dead: Records that Kafka has refused for good.
    """

    records: int = 0
    bytes: int = 0
    unconfirmed: int = 0
    waiting: int | None = None
    skipped: int = 0
    dead: int = 0


@dataclass(slots=True)
class Status:
    """How a bridge does.

    Attributes:
        bridge: Its name.
        state: `starting`, `running`, `draining` or `ended`.
        at_ns: When this was so, in nanoseconds since 1970-01-01 UTC.
        records_per_s: Confirmed records, each second since the line before.
        bytes_per_s: Confirmed bytes, each second since the line before.
        records: Confirmed records since the start.
        bytes: Confirmed bytes since the start.
        waiting: Records that wait at the edge; `None`: nobody knows.
        unconfirmed: Records that were sent and are not confirmed.
        lost: Records that were at the edge and were gone before their turn.
        dead: Records that Kafka has refused for good.
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
