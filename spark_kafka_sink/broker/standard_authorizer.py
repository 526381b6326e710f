"""Authorization by ACLs: deny wins, and some operations imply others (Kafka's StandardAuthorizerData)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from spark_kafka_sink.broker.acl import EVERYONE, WILDCARD, Acl, AclOperation, PatternType, Permission, ResourceType
from spark_kafka_sink.broker.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

# Implied by an ACL that allows; an ACL that denies covers only its own operation.
_IMPLIES: Final = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}


class StandardAuthorizer:
    """Decides what clients may do (Kafka's StandardAuthorizer). It has no state, so any thread may call it.

    A principal is "User:name"; a host is an IP address.
    """

    def __init__(
        self, acls: Callable[[], Collection[Acl]], super_users: Collection[str] = (), *, allow_if_no_acl: bool = False
    ) -> None:
        """Creates an authorizer.

        Args:
            acls: returns the current ACLs.
            super_users: principals that may do everything.
            allow_if_no_acl: whether every client may use a resource without ACLs.
        """
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl

    def is_allowed(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str, *, logged: bool = True
    ) -> bool:
        """Returns whether a client may perform the operation. `logged`: log a denial, because the client named this resource."""
        allowed = principal in self._super_users or self._is_granted(principal, host, operation, resource_type, name)
        if not allowed and logged:
            logger.info(
                "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s",
                principal, operation.name, host, resource_type.name, name,
            )  # fmt: skip
        return allowed

    def _is_granted(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        relevant = [acl for acl in self._acls() if acl.resource_type is resource_type and acl.applies_to(name)]
        if not relevant:
            return self._allow_if_no_acl
        mine = [acl for acl in relevant if _is_for(acl, principal, host) and _covers(acl, operation)]
        return bool(mine) and all(acl.permission is Permission.ALLOW for acl in mine)

    def is_allowed_on_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Returns whether a client may do that with at least one resource of the type (`Authorizer.authorizeByResourceType`)."""
        if self.is_allowed(principal, host, operation, resource_type, "hardcode", logged=False):
            return True  # super users ignore denials
        mine = [
            acl
            for acl in self._acls()
            if acl.resource_type is resource_type
            and _is_for(acl, principal, host)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = [acl for acl in mine if acl.permission is Permission.DENY]
        if any(_is_wildcard(acl) for acl in denied):
            return False
        return any(not _is_dominated(acl, denied) for acl in mine if acl.permission is Permission.ALLOW)


def authorizer_of(config: BrokerConfig, acls: Callable[[], Collection[Acl]]) -> StandardAuthorizer | None:
    """Returns the authorizer for these settings; None if every client may do everything."""
    if not config.has_authorizer:
        return None
    return StandardAuthorizer(acls, config.super_users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)


def _is_for(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYONE) and acl.host in (host, WILDCARD)


def _covers(acl: Acl, operation: AclOperation) -> bool:
    if acl.operation in (operation, AclOperation.ALL):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in _IMPLIES.get(operation, ())


def _is_wildcard(acl: Acl) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD


def _is_dominated(acl: Acl, denied: Iterable[Acl]) -> bool:
    """Returns whether a denial covers everything that an ACL allows."""
    if _is_wildcard(acl):
        return False
    return any(
        acl.resource_name.startswith(deny.resource_name)
        if deny.pattern_type is PatternType.PREFIXED
        else acl.pattern_type is PatternType.LITERAL and acl.resource_name == deny.resource_name
        for deny in denied
    )
