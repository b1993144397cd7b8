"""What all clients of a Kafka cluster share: settings, secrets, and what their errors mean."""

import os
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from mez.pipeline import keys
from mez.pipeline.errors import BusAwayError, BusError, BusRefusedError, RecordTooLargeError
from mez.pipeline.kafka_table import KafkaSettings

ANSWER_S_MAX: Final = 10.0
"""How long a cluster may take to answer, in seconds. Then it counts as away."""

LOOK_S: Final = 0.5
"""How often to check whether the cluster refuses this client, in seconds."""

HEAD_BYTES: Final = 64 << 10
"""Room for headers beside the largest record, in bytes."""

_SECRETS: Final = {
    "username": "MEZ_KAFKA_USERNAME",
    "password": "MEZ_KAFKA_PASSWORD",
    "key_password": "MEZ_KAFKA_KEY_PASSWORD",
}

# Errors that only a change of settings or rights can solve.
_REFUSALS: Final = {
    KafkaError._AUTHENTICATION: "the user name or the password is wrong; see kafka.credentials",
    KafkaError.SASL_AUTHENTICATION_FAILED: "the user name or the password is wrong; see kafka.credentials",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "the brokers do not know this mechanism; see kafka.sasl",
    KafkaError._SSL: "TLS fails; see kafka.ca, and kafka.certificate with kafka.key",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not use the topic; give it the right (ACL)",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user may not use the group; give it the right (ACL)",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the user may not do this; give it the right (ACL)",
    KafkaError.INVALID_REPLICATION_FACTOR: "there are fewer brokers than copies; see kafka.replication",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic does not exist; restart the pipeline, which creates it",
}


_TOO_LARGE: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
)

POISON: Final = _TOO_LARGE | {
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
}
"""Errors with which Kafka refuses one record for ever, and no other record."""


class Link:
    """Settings for clients of one cluster, and why it could not be reached.

    Args:
        settings: The table `kafka`.

    Attributes:
        heard: The library's last message about connections, for people. Empty: none since the last answer.

    Raises:
        BusError: The secrets are missing, or others can read them.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self._refusal = ""
        self.heard = ""
        self._common = _common(settings)

    def client(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401, what the library takes
        """The settings of a client. In names of settings, `_` replaces the dots."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {**self._common, "error_cb": self._hear, **named}

    def failed(self, what: str, error: object) -> BusError:
        """The error of a bus for an error of the library."""
        fault = error.args[0] if isinstance(error, KafkaException) else error
        if not isinstance(fault, KafkaError):
            return BusAwayError(f"{what}: {fault}")
        refusal = _REFUSALS.get(fault.code())
        if refusal is not None:
            return BusRefusedError(f"{what}: {fault.str()}: {refusal}")
        if fault.code() in _TOO_LARGE:
            return RecordTooLargeError(
                f"{what}: {fault.str()}; raise max.message.bytes of the topic, or make smaller records"
            )
        if fault.code() in POISON:
            return BusError(f"{what}: {fault.str()}; this record cannot be sent")
        if self._refusal:
            # The library's error only says that no broker was reached; the earlier refusal is the cause.
            return BusRefusedError(f"{what}: {self._refusal}")
        servers = ",".join(self.settings.servers)
        return BusAwayError(f"{what}: Kafka at {servers} does not answer ({fault.str()}); is it running?")

    def reached(self) -> None:
        """Note that the cluster has answered."""
        self._refusal = self.heard = ""

    def _hear(self, error: KafkaError) -> None:
        refusal = _REFUSALS.get(error.code())
        self.heard = f"{error.str()}: {refusal}" if refusal else error.str()
        if refusal is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._refusal = f"{error.str()}: {refusal}"


class Admin:
    """Lists the topics of a cluster, and creates topics.

    Args:
        link: The cluster.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._client: AdminClient | None = None

    @property
    def client(self) -> AdminClient:
        """The library's client, connected at its first use."""
        if self._client is None:
            self._client = AdminClient(self._link.client())
        return self._client

    def topics(self, is_over: Callable[[], bool] = lambda: False) -> Mapping[str, Any]:
        """The topics that this client may see, by name.

        Args:
            is_over: Whether the pipeline is to end. Then the call does not try again.

        Raises:
            BusAwayError: The cluster does not answer.
            BusError: It refuses this client.
        """
        until_s = time.monotonic() + ANSWER_S_MAX / 2
        while True:
            try:
                found: Mapping[str, Any] = self.client.list_topics(timeout=LOOK_S).topics
            except KafkaException as error:
                # Errors of TLS or SASL come through the callback.
                self.client.poll(0)
                failed = self._link.failed("the topics", error)
                if isinstance(failed, BusAwayError) and time.monotonic() < until_s and not is_over():
                    continue
                raise failed from error
            self._link.reached()
            return found

    def make(self, names: Sequence[str], is_over: Callable[[], bool] = lambda: False) -> None:
        """Create missing topics with the settings of the table `kafka`. Existing topics do not change.

        Args:
            names: The topics.
            is_over: Whether the pipeline is to end. Then the call does not try again.

        Raises:
            BusAwayError: The cluster does not answer.
            BusError: It refuses. Other topics of the list are created.
        """
        known, settings = self.topics(is_over), self._link.settings
        missing = [name for name in names if name not in known]
        if not missing:
            return
        config = {
            "retention.ms": str(round(settings.retention_s * 1000)),
            "max.message.bytes": str(settings.record_bytes_max + HEAD_BYTES),
            # With three copies, confirmed records survive the loss of a broker, and work continues.
            "min.insync.replicas": str(min(2, max(1, settings.replication - 1))),
        }
        made = self.client.create_topics(
            [NewTopic(name, settings.partitions, settings.replication, config=config) for name in missing],
            request_timeout=ANSWER_S_MAX,
        )
        for name, future in made.items():
            try:
                future.result()
            except KafkaException as error:
                # Another program created it at the same time.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._link.failed(f"topic {name}", error) from error

    def record_bytes_max(self, topics: Sequence[str]) -> int:
        """The most bytes that all of these topics accept in a request for a partition (`max.message.bytes`).

        Raises:
            BusAwayError: The cluster does not answer.
            BusError: It refuses, because a right is missing.
        """
        asked = self.client.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics], request_timeout=ANSWER_S_MAX
        )
        try:
            return min(int(future.result()["max.message.bytes"].value) for future in asked.values())
        except KafkaException as error:
            raise self._link.failed("the settings of the topics", error) from error

    def close(self) -> None:
        """Close the connection."""
        self._client = None


def headers(message: Message, errors: str = "strict") -> dict[str, str]:
    """The headers of a message as texts.

    Raises:
        UnicodeDecodeError: A header is not UTF-8, and `errors` is `"strict"`.
    """
    # The library's types do not say in which form headers come.
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
        # The library logs only severe errors: the bus reports errors itself.
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
    """Secrets from the file; those that the file does not have, from the environment."""
    told: Mapping[str, Any] = {}
    path = settings.credentials
    if path is not None:
        give = "give a TOML file with username and password"
        try:
            told = tomllib.loads(keys.owned(path, "kafka.credentials", give))
        except tomllib.TOMLDecodeError as error:
            raise BusError(f"kafka.credentials: {path} cannot be read ({error}); {give}") from error
    found: dict[str, str] = {}
    for name, variable in _SECRETS.items():
        value = told.get(name, os.environ.get(variable))
        if value is not None and not isinstance(value, str):
            raise BusError(f"kafka.credentials: {name} in {path} is not a text; put it in quotes")
        if value:
            found[name] = value
    return found
