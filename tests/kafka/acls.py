"""Real Kafka that checks ACLs on each request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.kafka.cluster import KafkaCluster
from tests.kafka.kafka import Kafka
from tests.waiting import DEADLINE_S

PRINCIPAL = "User:ANONYMOUS"  # everybody, on a PLAINTEXT listener
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class KafkaWithAcls(KafkaCluster):
    """One broker that allows everything except what a test denies: `deny(ResourceType.TOPIC, name, AclOperation.WRITE)`."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        """overrides: broker settings, such as {"transaction.max.timeout.ms": "60000"}."""
        super().__init__(1, {**SETTINGS, **(overrides or {})})

    def deny(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> None:
        """Denies an operation until `allow_everything()`. All other operations on the resource stay allowed.

        prefixed: every resource whose name begins with `name`.
        """
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        denied = [binding(kind, name, operation, permission=AclPermissionType.DENY, pattern=pattern) for operation in operations]
        # With a first ACL a resource is closed to all that no ACL allows (StandardAuthorizerData.findAclRule).
        add_acls(self, [*denied, binding(kind, name, AclOperation.ALL, pattern=pattern)])

    @contextmanager
    def denied(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> Iterator[None]:
        """Denies an operation during a `with`. After it everything is allowed again."""
        self.deny(kind, name, *operations, prefixed=prefixed)
        try:
            yield
        finally:
            self.allow_everything()

    def allow_everything(self) -> None:
        """Removes every ACL."""
        remove_acls(self)


def add_acls(kafka: Kafka, bindings: Sequence[AclBinding]) -> None:
    """Creates ACLs, and returns when they are in force."""
    for created in kafka.admin.create_acls(list(bindings), request_timeout=DEADLINE_S).values():
        created.result()
    names = ", ".join(sorted({each.name for each in bindings}))
    kafka.wait_for(lambda: set(bindings) <= set(acls(kafka)), f"ACLs of {names} in force", DEADLINE_S)


def remove_acls(kafka: Kafka) -> None:
    """Removes all ACLs, and returns when none is in force."""
    if not acls(kafka):
        return
    for deleted in kafka.admin.delete_acls([_everything()], request_timeout=DEADLINE_S).values():
        deleted.result()
    kafka.wait_for(lambda: not acls(kafka), "ACLs removed", DEADLINE_S)


def acls(kafka: Kafka) -> Collection[AclBinding]:
    """Returns the ACLs of the broker's authorizer, which learns of a change just after the controller confirms it."""
    described: Collection[AclBinding] = kafka.admin.describe_acls(_everything(), request_timeout=DEADLINE_S).result()
    return described


def binding(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    principal: str = PRINCIPAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    """Returns an ACL for every host."""
    return AclBinding(kind, name, pattern, principal, "*", operation, permission)


def _everything() -> AclBindingFilter:
    anything: Any = None  # confluent-kafka's own type says str, its code and its manual None
    every = AclOperation.ANY, AclPermissionType.ANY
    return AclBindingFilter(ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything, *every)
