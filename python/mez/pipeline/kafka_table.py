"""The table `kafka` of a file: how clients reach a cluster, and the settings of topics that are created."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mez._hosts import is_loopback
from mez.pipeline import keys
from mez.pipeline.keys import Key

KEYS: Final = (
    Key("servers", "texts", "Brokers to begin with, HOST:PORT", needed=True),
    Key(
        "security",
        "text",
        "tls, or plaintext. Default: plaintext if all servers are on loopback, else tls",
        choices=("tls", "plaintext"),
    ),
    Key(
        "ca", "text", "The file with the authority of the brokers' certificates (PEM). Default: the system's"
    ),
    Key("certificate", "text", "The file with this client's certificate (PEM)"),
    Key("key", "text", "The file with its key (PEM)"),
    Key("sasl", "text", "How the client says who it is", choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")),
    Key(
        "credentials",
        "text",
        "The file with username, password and key_password (TOML), for its owner alone. "
        "Else MEZ_KAFKA_USERNAME, MEZ_KAFKA_PASSWORD and MEZ_KAFKA_KEY_PASSWORD",
    ),
    Key(
        "partitions",
        "whole",
        "Partitions of topics that are made: so many workers of a stage have work",
        12,
        low=1,
        high=10_000,
    ),
    Key("replication", "whole", "Copies of each partition of topics that are made", 1, low=1, high=32),
    Key(
        "retention_s",
        "number",
        "How long topics that are made keep records, in seconds",
        86_400.0,
        low=1,
        high=1e9,
    ),
    Key(
        "record_bytes_max",
        "whole",
        "The largest record, in bytes; the brokers have to take it",
        8 << 20,
        low=1 << 10,
        high=1 << 28,
    ),
)
"""The table `kafka` of a file."""

_SECRETS: Final = ("username", "password", "key_password", "sasl_password", "sasl_username")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The table `kafka`. Paths are absolute."""

    servers: tuple[str, ...]
    partitions: int
    replication: int
    retention_s: float
    record_bytes_max: int
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    sasl: str | None = None
    credentials: Path | None = None


def read(table: object, folder: Path, faults: list[tuple[str, str]]) -> KafkaSettings | None:
    """The settings of a table; `None` if there are faults.

    Args:
        table: The table of the file.
        folder: The file's folder. Paths are relative to it.
        faults: Faults are appended: the field, and a sentence.
    """
    if isinstance(table, dict):
        faults += [
            (
                f"kafka.{name}",
                "this file must not contain secrets; put them into a file that only its owner can read, "
                "and name it in kafka.credentials",
            )
            for name in _SECRETS
            if name in table
        ]
        table = {name: value for name, value in table.items() if name not in _SECRETS}
    of = keys.read(table, KEYS, "kafka", faults)
    servers = keys.several(of["servers"])
    near = bool(servers) and all(is_loopback(server.rpartition(":")[0]) for server in servers)
    tls = of["security"] != "plaintext" if of["security"] is not None else not near
    faults += _disagreements(of, tls=tls, near=near)
    if faults:
        return None
    return KafkaSettings(
        servers=servers,
        tls=tls,
        ca=keys.path(folder, of["ca"]),
        certificate=keys.path(folder, of["certificate"]),
        key=keys.path(folder, of["key"]),
        sasl=of["sasl"],
        credentials=keys.path(folder, of["credentials"]),
        partitions=of["partitions"],
        replication=of["replication"],
        retention_s=float(of["retention_s"]),
        record_bytes_max=of["record_bytes_max"],
    )


def _disagreements(of: dict[str, Any], *, tls: bool, near: bool) -> list[tuple[str, str]]:
    """Faults of keys that do not fit together."""
    wrong = []
    if not tls and not near and of["sasl"] is not None:
        wrong.append(("kafka.security", "a password would cross the network unencrypted; give tls"))
    if (of["certificate"] is None) != (of["key"] is None):
        wrong.append(("kafka.key", "certificate and key go together; give both, or none"))
    if not tls and (of["certificate"] or of["ca"]):
        wrong.append(("kafka.security", 'certificates are for TLS; give security = "tls"'))
    if of["credentials"] is not None and of["sasl"] is None and of["key"] is None:
        wrong.append(("kafka.credentials", "has no effect without sasl or key; give sasl, or leave it out"))
    return wrong
