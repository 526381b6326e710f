"""ACLs as values and as the arguments of kafka-acls, and what they allow (Kafka's StandardAuthorizer)."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from spark_kafka_sink.errors import OptionError

logger = logging.getLogger(__name__)

WILDCARD: Final = "*"
EVERYONE: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class ResourceType(IntEnum):
    """Resource types with Kafka's codes. ANY is for filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Pattern types with Kafka's codes. ANY and MATCH are for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations with Kafka's codes. ANY is for filters, ALL for ACLs."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """Permissions with Kafka's codes (AclPermissionType). ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class Acl:
    """One ACL. `str` returns the arguments of kafka-acls that add it.

    Attributes:
        principal: "User:ana", or "User:*" for everyone.
        operation: the operation that is allowed or denied.
        resource_type: TOPIC, GROUP, and so on.
        resource_name: the name of the resource, or "*" for all resources of the type.
        pattern_type: LITERAL, or PREFIXED for all names that start with `resource_name`.
        permission: ALLOW or DENY.
        host: the client's IP address, or "*" for any.
    """

    principal: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str = CLUSTER_NAME
    pattern_type: PatternType = PatternType.LITERAL
    permission: Permission = Permission.ALLOW
    host: str = WILDCARD

    def __str__(self) -> str:
        verb = "allow" if self.permission is Permission.ALLOW else "deny"
        words = [f"--{verb}-principal", self.principal]
        if self.host != WILDCARD:
            words += [f"--{verb}-host", self.host]
        words += ["--operation", _pascal(self.operation), _RESOURCE_OPTION[self.resource_type]]
        if self.resource_type is not ResourceType.CLUSTER:
            words.append(self.resource_name)
        if self.pattern_type is PatternType.PREFIXED:
            words += ["--resource-pattern-type", "prefixed"]
        return shlex.join(words)

    def applies_to(self, name: str) -> bool:
        """Returns whether the pattern matches this resource name; the resource must be of the ACL's type."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs (Kafka's AclBindingFilter). None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        """Implements `ResourcePatternFilter.matches`: with MATCH, the name is a resource's, otherwise a pattern's."""
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is PatternType.MATCH:
            return acl.applies_to(self.resource_name)
        return self.resource_name == acl.resource_name


def _pascal(value: IntEnum) -> str:
    return "".join(word.capitalize() for word in value.name.split("_"))


_RESOURCE_OPTION: Final = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.CLUSTER: "--cluster",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.DELEGATION_TOKEN: "--delegation-token",
    ResourceType.USER: "--user-principal",
}
_RESOURCE_OF: Final = {option: kind for kind, option in _RESOURCE_OPTION.items()}
_NAMED: Final = frozenset(
    {"--allow-principal", "--deny-principal", "--allow-host", "--deny-host", "--operation", "--resource-pattern-type"}
)
_FLAGS: Final = frozenset({"--producer", "--consumer", "--idempotent"})
_IGNORED: Final = {"--add": 0, "--force": 0, "-f": 0, "--bootstrap-server": 1, "--command-config": 1}

E = TypeVar("E", bound=IntEnum)


def parse_acls(text: str) -> list[Acl]:
    """Parses the arguments of kafka-acls that add ACLs, such as `--allow-principal User:ana --operation Write --topic events`.

    Ignores a leading `kafka-acls.sh`, `--add` and the options that locate the cluster. `--producer`, `--consumer` and
    `--idempotent` have the same meaning as in kafka-acls.

    Raises:
        OptionError: the text is not a valid ACL.
    """
    given, flags = _options(text)
    pattern = _one_of(PatternType, (given["--resource-pattern-type"] or ["literal"])[-1], text)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(text, "--resource-pattern-type must be literal or prefixed")
    resources = [(kind, name) for option, kind in _RESOURCE_OF.items() for name in given[option]]
    if not resources and "--idempotent" not in flags:
        raise _invalid(text, f"no resource is given: add one of {', '.join(_RESOURCE_OF)}")
    wanted = list(_wanted(given["--operation"], flags, resources, text))
    acls = []
    for permission, verb in ((Permission.ALLOW, "allow"), (Permission.DENY, "deny")):
        for principal in given[f"--{verb}-principal"]:
            if not all(principal.partition(":")):
                raise _invalid(text, f"{principal!r} is not a valid principal; write it like User:ana")
            for host in given[f"--{verb}-host"] or [WILDCARD]:
                for operation, kind, name in wanted:
                    shape = PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern
                    acls.append(Acl(principal, operation, kind, name, shape, permission, host))
    if not acls:
        raise _invalid(text, "no principal is given: add --allow-principal or --deny-principal")
    return list(dict.fromkeys(acls))


def _wanted(
    operations: Sequence[str], flags: set[str], resources: Sequence[tuple[ResourceType, str]], text: str
) -> Iterable[tuple[AclOperation, ResourceType, str]]:
    read, write, create, describe = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE
    named = [_one_of(AclOperation, each, text) for each in operations]
    if AclOperation.ANY in named:
        raise _invalid(text, "--operation Any is for filters only; use All for every operation")
    by_flag: dict[tuple[str, ResourceType], tuple[AclOperation, ...]] = {
        ("--producer", ResourceType.TOPIC): (write, describe, create),
        ("--producer", ResourceType.TRANSACTIONAL_ID): (write, describe),
        ("--consumer", ResourceType.TOPIC): (read, describe),
        ("--consumer", ResourceType.GROUP): (read,),
    }
    convenient = flags & {"--producer", "--consumer"}
    for kind, name in resources:
        for operation in named or (() if convenient else (AclOperation.ALL,)):
            yield operation, kind, name
        for flag in sorted(convenient):
            for operation in by_flag.get((flag, kind), ()):
                yield operation, kind, name
    if "--idempotent" in flags:
        yield AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME


def _options(text: str) -> tuple[dict[str, list[str]], set[str]]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _invalid(text, str(error)) from None
    if words and not words[0].startswith("-") and "kafka-acls" in words[0]:
        del words[0]
    given: dict[str, list[str]] = {option: [] for option in (*_NAMED, *_RESOURCE_OF)}
    flags: set[str] = set()
    while words:
        option, sign, value = words.pop(0).partition("=")
        if option in _FLAGS:
            flags.add(option)
        elif option in _IGNORED:
            del words[: 0 if sign else _IGNORED[option]]
        elif option == "--cluster":
            # The value is optional, as in Kafka's tool.
            if not sign and words and not words[0].startswith("--"):
                del words[0]
            given[option].append(CLUSTER_NAME)
        elif option in given:
            if not sign and not words:
                raise _invalid(text, f"{option} has no value")
            given[option].append(value if sign else words.pop(0))
        else:
            raise _invalid(text, f"{option} is not a supported argument of kafka-acls")
    return given, flags


def _one_of(kind: type[E], name: str, text: str) -> E:
    wanted = name.replace("_", "").lower()
    for each in kind:
        if each.name.replace("_", "").lower() == wanted:
            return each
    raise _invalid(text, f"{name!r} must be one of {', '.join(map(_pascal, kind))}")


def _invalid(text: str, why: str) -> OptionError:
    return OptionError(f"ACL {text!r}: {why}", option="acls")


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
