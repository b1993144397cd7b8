"""Users of a real Kafka, and what they may not do."""

from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from tests.pipelines_kafka import Kafka


class Forbidden:
    """A topic to which a user may not write, until it is allowed.

    Args:
        kafka: The cluster.
        topic: The topic. It is made.
        user: The user, by default the one with a password.
    """

    def __init__(self, kafka: Kafka, topic: str, user: str = "mez") -> None:
        self._admin = AdminClient({"bootstrap.servers": kafka.server})
        self._admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        place: Any = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        denied: Any = (f"User:{user}", "*", AclOperation.WRITE, AclPermissionType.DENY)
        allowed: Any = ("User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        self._filter = AclBindingFilter(*place, *denied)
        self._rule = AclBinding(*place, *denied)
        self._add(AclBinding(*place, *allowed))
        self.forbid()

    def forbid(self) -> None:
        """Take the right away."""
        self._add(self._rule)

    def allow(self) -> None:
        """Give the right."""
        self._admin.delete_acls([self._filter])[self._filter].result()

    def _add(self, rule: AclBinding) -> None:
        self._admin.create_acls([rule])[rule].result()


def add_scram_user(kafka: Kafka, user: str, password: str) -> None:
    """Make a user that says who it is by SCRAM-SHA-512."""
    admin = AdminClient({"bootstrap.servers": kafka.server})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    admin.alter_user_scram_credentials([change])[user].result()
