"""A real Kafka that asks its ACLs before it does anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
from tests.kafka.kafka import REQUEST_TIMEOUT_S

PRINCIPAL = "User:ANONYMOUS"  # everybody, on a PLAINTEXT listener
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class KafkaWithAcls(KafkaCluster):
    """One broker, where everything is allowed that is not denied: `deny(ResourceType.TOPIC, name, AclOperation.WRITE)`."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        """overrides: broker settings, such as {"transaction.max.timeout.ms": "60000"}."""
        super().__init__(1, {**SETTINGS, **(overrides or {})})

    def deny(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> None:
        """From now on, until `allow_everything()`. All other operations on the resource stay allowed.

        prefixed: every resource whose name begins with `name`.
        """
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        denied = [_binding(kind, name, pattern, operation, AclPermissionType.DENY) for operation in operations]
        # With a first ACL a resource is closed to all that no ACL allows (StandardAuthorizerData.findAclRule).
        bindings = [*denied, _binding(kind, name, pattern, AclOperation.ALL, AclPermissionType.ALLOW)]
        for created in self.admin.create_acls(bindings, request_timeout=REQUEST_TIMEOUT_S).values():
            created.result()
        self.wait_for(lambda: set(bindings) <= set(self.acls()), f"ACLs of {name} in force", REQUEST_TIMEOUT_S)

    @contextmanager
    def denied(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> Iterator[None]:
        """`deny` for the length of a `with`, after which everything is allowed again."""
        self.deny(kind, name, *operations, prefixed=prefixed)
        try:
            yield
        finally:
            self.allow_everything()

    def allow_everything(self) -> None:
        """Removes every ACL."""
        if not self.acls():
            return
        for deleted in self.admin.delete_acls([_everything()], request_timeout=REQUEST_TIMEOUT_S).values():
            deleted.result()
        self.wait_for(lambda: not self.acls(), "ACLs removed", REQUEST_TIMEOUT_S)

    def acls(self) -> Collection[AclBinding]:
        """As the broker's own authorizer has them, which learns of a change a moment after the controller confirmed it."""
        described: Collection[AclBinding] = self.admin.describe_acls(_everything(), request_timeout=REQUEST_TIMEOUT_S).result()
        return described


def _binding(
    kind: ResourceType, name: str, pattern: ResourcePatternType, operation: AclOperation, permission: AclPermissionType
) -> AclBinding:
    return AclBinding(kind, name, pattern, PRINCIPAL, "*", operation, permission)


def _everything() -> AclBindingFilter:
    anything: Any = None  # confluent-kafka's own type says str, its code and its manual None
    every = AclOperation.ANY, AclPermissionType.ANY
    return AclBindingFilter(ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything, *every)
