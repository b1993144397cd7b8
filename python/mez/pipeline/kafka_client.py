"""What all clients of a Kafka cluster share: settings, secrets, and what their errors mean."""

import os
import stat
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from mez.pipeline.errors import BusAwayError, BusError
from mez.pipeline.file import KafkaSettings

ANSWER_S_MAX: Final = 10.0
"""How long a cluster may take to answer, in seconds. Then it counts as away."""

HEAD_BYTES: Final = 64 << 10
"""Room for headers beside the largest record, in bytes."""

_SECRETS: Final = {
    "username": "MEZ_KAFKA_USERNAME",
    "password": "MEZ_KAFKA_PASSWORD",
    "key_password": "MEZ_KAFKA_KEY_PASSWORD",
}

# What a change of settings or of rights helps against, and nothing else.
_REFUSALS: Final = {
    KafkaError._AUTHENTICATION: "the user name or the password is wrong; see kafka.credentials",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the user name or the password is wrong; see kafka.credentials",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "the brokers do not know this mechanism; see kafka.sasl",
    KafkaError._SSL: "TLS fails; see kafka.ca, and kafka.certificate with kafka.key",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not use the topic; give it the right (ACL)",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user may not use the group; give it the right (ACL)",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the user may not do this; give it the right (ACL)",
    KafkaError.INVALID_REPLICATION_FACTOR: "there are fewer brokers than copies; see kafka.replication",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic is gone; start the pipeline again, which makes it",
}


class Link:
    """Settings for clients of one cluster, and why it was last not reached.

    Args:
        settings: The table `kafka`.

    Raises:
        BusError: The secrets are not there, or others can read them.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self._refusal = ""
        self._common = _common(settings)

    def client(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401, what the library takes
        """The settings of a client; `_` stands for the dots of their names."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {**self._common, "error_cb": self._hear, **named}

    def failed(self, what: str, error: object) -> BusError:
        """The error of a bus for one of the library."""
        fault = error.args[0] if isinstance(error, KafkaException) else error
        if not isinstance(fault, KafkaError):
            return BusAwayError(f"{what}: {fault}")
        refusal = _REFUSALS.get(fault.code())
        if refusal is not None:
            return BusError(f"{what}: {fault.str()}: {refusal}")
        if self._refusal:
            # The library only says that no broker was reached.
            return BusError(f"{what}: {self._refusal}")
        servers = ",".join(self.settings.servers)
        return BusAwayError(f"{what}: Kafka at {servers} does not answer ({fault.str()}); is it running?")

    def reached(self) -> None:
        """Hear that the cluster has answered."""
        self._refusal = ""

    def _hear(self, error: KafkaError) -> None:
        refusal = _REFUSALS.get(error.code())
        if refusal is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._refusal = f"{error.str()}: {refusal}"


def headers(message: Message, errors: str = "strict") -> dict[str, str]:
    """The headers of a message as texts.

    Raises:
        UnicodeDecodeError: One is no UTF-8, and `errors` is `"strict"`.
    """
    # The library's own types leave open which form they have.
    told: Any = message.headers()
    return {
        name: value if isinstance(value, str) else str(value or b"", "utf-8", errors)
        for name, value in told or ()
    }


def _common(settings: KafkaSettings) -> dict[str, Any]:
    common: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.servers),
        "security.protocol": ("SASL_" if settings.sasl else "") + ("SSL" if settings.tls else "PLAINTEXT"),
        # Sooner than the defaults, so that records flow again soon after a restart of the brokers.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": 30_000,
        # Of the log: the bus tells of its errors itself.
        "log_level": 2,
    }
    files = {"ssl.ca.location": settings.ca, "ssl.certificate.location": settings.certificate}
    files["ssl.key.location"] = settings.key
    common |= {name: str(path) for name, path in files.items() if path is not None}
    secrets = _secrets(settings) if settings.sasl or settings.key else {}
    if settings.sasl:
        for name in ("username", "password"):
            if not secrets.get(name):
                raise BusError(
                    f"kafka.sasl needs {name}; put it into the file that kafka.credentials names, or into "
                    f"{_SECRETS[name]}"
                )
        common["sasl.mechanism"] = settings.sasl
        common["sasl.username"], common["sasl.password"] = secrets["username"], secrets["password"]
    if settings.key and secrets.get("key_password"):
        common["ssl.key.password"] = secrets["key_password"]
    return common


def _secrets(settings: KafkaSettings) -> dict[str, str]:
    """Secrets of the file, and of the environment where the file has none."""
    told: Mapping[str, Any] = {}
    path = settings.credentials
    if path is not None:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            told = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BusError(
                f"kafka.credentials: {path} cannot be read ({error}); give a TOML file with username "
                "and password"
            ) from error
        if mode & 0o077:
            raise BusError(f"kafka.credentials: others can read {path}; run: chmod 600 {path}")
    found: dict[str, str] = {}
    for name, variable in _SECRETS.items():
        value = told.get(name, os.environ.get(variable))
        if value is not None and not isinstance(value, str):
            raise BusError(f"kafka.credentials: {name} in {path} is no text; put it in quotes")
        if value:
            found[name] = value
    return found
