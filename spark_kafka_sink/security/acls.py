"""The right that a rejected client lacks, and the command that grants it: the single place of these texts. Pure.

The required rights are those that KafkaApis checks. In Kafka, Write and Read on a resource include Describe.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from spark_kafka_sink.errors import AuthorizationError, BrokerError, KafkaSinkError
from spark_kafka_sink.options.secret import Secret, resolve
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.security.credentials import jaas_of

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a client that does not log in."""

COMMIT_LOG: Final = "--operation Create --operation DescribeConfigs --operation Read --operation Write"
"""All rights that a driver needs on the commit log's topic; brokers check them one after the other."""

CONSUMER: Final = "--operation Read"
"""The right that a client needs to read a topic, which includes Describe."""


class Resource(StrEnum):
    """The kinds of resources that rights are granted on."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional id"
    DELEGATION_TOKEN = "delegation token"


class Right(NamedTuple):
    """operation: the checked operation. grants: the kafka-acls options that grant it. first: what to do before."""

    operation: str
    grants: str
    first: str = ""


R = Resource
_DESCRIBE: Final = Right("Describe", "--operation Describe")
_READ: Final = Right("Read", "--operation Read")
_WRITE: Final = Right("Write", "--operation Write")
_DESCRIBE_CONFIGS: Final = Right("DescribeConfigs", "--operation DescribeConfigs")
_CREATE: Final = Right("Create", "--operation Create")
_IDEMPOTENT_WRITE: Final = Right("IdempotentWrite", "--operation IdempotentWrite")
_USE_ID: Final = "--operation Write --operation Describe"

RESOURCE_OF: Final[Mapping[int, Resource]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: R.TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: R.GROUP,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: R.CLUSTER,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: R.TRANSACTIONAL_ID,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: R.DELEGATION_TOKEN,
}
"""The codes of a missing right."""

_OTHERWISE: Final[Mapping[Resource, Right]] = {
    R.TOPIC: _WRITE,
    R.GROUP: _READ,
    R.CLUSTER: _DESCRIBE,
    R.TRANSACTIONAL_ID: Right("Write", _USE_ID),
    R.DELEGATION_TOKEN: _DESCRIBE,
}
"""The default for requests that are not in the next table."""

_RIGHTS: Final[Mapping[tuple[Resource, ApiKey], Right]] = {
    # A client that may not describe a topic needs Write next. If brokers create topics, a missing Create right gives the same
    # code, but granting Create would create topics for misspelled names.
    (R.TOPIC, ApiKey.METADATA): Right("Describe", "--producer", "check that the topic exists, then "),
    (R.TOPIC, ApiKey.TXN_OFFSET_COMMIT): _READ,  # of the topic that was read
    (R.TOPIC, ApiKey.FETCH): _READ,
    (R.TOPIC, ApiKey.LIST_OFFSETS): _DESCRIBE,
    (R.TOPIC, ApiKey.CREATE_TOPICS): _CREATE,
    (R.TOPIC, ApiKey.DESCRIBE_CONFIGS): _DESCRIBE_CONFIGS,
    (R.GROUP, ApiKey.FIND_COORDINATOR): Right("Describe", "--operation Read"),  # Read is needed next
    (R.CLUSTER, ApiKey.INIT_PRODUCER_ID): _IDEMPOTENT_WRITE,
    (R.CLUSTER, ApiKey.PRODUCE): _IDEMPOTENT_WRITE,  # before Kafka 2.8
    (R.CLUSTER, ApiKey.CREATE_TOPICS): _CREATE,
    (R.CLUSTER, ApiKey.DESCRIBE_CONFIGS): _DESCRIBE_CONFIGS,
    (R.TRANSACTIONAL_ID, ApiKey.FIND_COORDINATOR): Right("Describe", _USE_ID),
    (R.TRANSACTIONAL_ID, ApiKey.DESCRIBE_TRANSACTIONS): Right("Describe", _USE_ID),
    (R.TRANSACTIONAL_ID, ApiKey.LIST_TRANSACTIONS): Right("Describe", _USE_ID),
}

_IAM: Final[Mapping[tuple[Resource, str], str]] = {
    (R.TOPIC, "Describe"): "DescribeTopic",
    (R.TOPIC, "Create"): "CreateTopic",
    (R.TOPIC, "Write"): "WriteData",
    (R.TOPIC, "Read"): "ReadData",
    (R.TOPIC, "DescribeConfigs"): "DescribeTopicDynamicConfiguration",
    (R.GROUP, "Describe"): "DescribeGroup",
    (R.GROUP, "Read"): "AlterGroup",
    (R.CLUSTER, "Describe"): "DescribeCluster",
    (R.CLUSTER, "DescribeConfigs"): "DescribeClusterDynamicConfiguration",
    (R.CLUSTER, "IdempotentWrite"): "WriteDataIdempotently",
    (R.TRANSACTIONAL_ID, "Describe"): "DescribeTransactionalId",
    (R.TRANSACTIONAL_ID, "Write"): "AlterTransactionalId",
}
"""Actions of Amazon MSK's IAM policies, which replace kafka-acls there."""

# Exactly-once ids are prefix.query.token.slot and prefix.query.log. Each batch may use new ones, so rights are on the prefix.
_QUERY: Final = r"(?:job-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_DRAWN_ID: Final = re.compile(rf"(?P<prefix>.+\.){_QUERY}\.(?:[0-9a-f]{{16}}\.\d+|log)")


@dataclass(frozen=True, slots=True)
class Denial:
    """A right that a client lacks.

    Attributes:
        principal: The client's principal, such as "User:ana"; empty if unknown.
        operation: Kafka's name of the operation, such as "Write".
        resource: The resource, such as "topic events".
        to_do: The command or action that grants the right.
        acl: The kafka-acls command alone; empty if rights are granted in another way.
    """

    principal: str
    operation: str
    resource: str
    to_do: str
    acl: str

    def __str__(self) -> str:
        who = self.principal or "this client"
        return f"{who} is not authorized for {self.operation} on {self.resource}; to grant it, {self.to_do}"

    @property
    def facts(self) -> dict[str, Any]:
        known = {"principal": self.principal} if self.principal else {}
        return {**known, "operation": self.operation, "resource": self.resource, "acl": self.acl}


@dataclass(frozen=True, slots=True)
class Rights:
    """Describes the missing rights of one client on one cluster.

    Attributes:
        servers: bootstrap.servers.
        principal: The client's principal, such as "User:ana"; empty if unknown.
        is_plaintext: Whether kafka-acls can connect without its own settings.
        has_iam: Whether the cluster uses IAM policies instead of ACLs.
    """

    servers: tuple[str, ...] = ()
    principal: str = ""
    is_plaintext: bool = True
    has_iam: bool = False

    def denied(self, api: ApiKey, code: int, name: str = "", *, grants: str | None = None) -> Denial | None:
        """Returns the right that is missing according to a response; None if the code has another meaning.

        Args:
            api: The request.
            code: The error code in the response.
            name: Name of the topic or group, the transactional id, or the token.
            grants: kafka-acls options that grant this right together with others; None for this right alone.
        """
        kind = RESOURCE_OF.get(code)
        if kind is None:
            return None
        right = _RIGHTS.get((kind, api), _OTHERWISE[kind])
        pattern, where = _pattern(kind, name)
        if self.has_iam:
            action = _IAM.get((kind, right.operation), right.operation)
            to_do = f"{right.first}allow kafka-cluster:{action} in the client's IAM policy"
            return Denial(self.principal, right.operation, where, to_do, "")
        acl = f"{self._command()} {grants or right.grants} {pattern}"
        return Denial(self.principal, right.operation, where, f"{right.first}run `{acl}`", acl)

    def error(
        self, text: str, api: ApiKey, code: int, name: str = "", *, grants: str | None = None, more: str = "", **facts: Any
    ) -> BrokerError:
        """Returns the error for a rejection. For codes of a missing right it is an AuthorizationError that says what to grant.

        text: what happened, with the code's name. more: end of the text. The other arguments are as for `denied`.
        """
        facts = {**facts, "error_code": int(code), "error": error_facts(code).name}
        denial = self.denied(api, code, name, grants=grants)
        if denial is None:
            return BrokerError(text + more, **facts)
        return AuthorizationError(f"{text}; {denial}{more}", **facts, **denial.facts)

    def _command(self) -> str:
        config = [] if self.is_plaintext else ["--command-config", "admin.properties"]
        servers = ["--bootstrap-server", ",".join(self.servers)]
        principal = ["--allow-principal", self.principal or "User:NAME"]
        return shlex.join(["kafka-acls", *servers, *config, "--add", *principal])


def rights_of(servers: Sequence[str], security: SecurityConfig) -> Rights:
    """Returns the Rights of a client with these settings. servers: its bootstrap.servers.

    It may read the client's certificate, so call it only for an error.
    """
    has_iam = security.uses_sasl and security.sasl_mechanism == "AWS_MSK_IAM"
    return Rights(tuple(servers), principal_of(servers, security), security.security_protocol == "PLAINTEXT", has_iam)


# The client's principal

_USERS: Final = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})


def principal_of(servers: Sequence[str], security: SecurityConfig) -> str:
    """Returns the principal of a client with these settings, such as "User:ana"; empty if only the broker knows it.

    Confluent Cloud and Event Hubs map the user of a password to another name, and brokers do so for tokens and Kerberos tickets.
    """
    if not security.uses_sasl:
        text = security.ssl_keystore_certificate_chain
        file = security.ssl_certificate_location or security.ssl_keystore_location
        if not security.uses_tls or (text is None and file is None):
            return ANONYMOUS
        return _subject(text, file)
    if security.sasl_mechanism not in _USERS:
        return ""
    user = _user(security)
    renamed = user.startswith("$") or any(".confluent.cloud:" in server for server in servers)
    return f"User:{user}" if user and not renamed else ""


def _subject(text: Secret | None, file: str | None) -> str:
    """Returns a certificate's subject, before the broker's ssl.principal.mapping.rules; empty if it cannot be read."""
    try:
        from cryptography import x509  # of the extra tls

        pem = text.reveal().encode() if text is not None else Path(resolve(file or "")).read_bytes()
        return f"User:{x509.load_pem_x509_certificate(pem).subject.rfc4514_string()}"
    except (ImportError, KafkaSinkError, OSError, ValueError):  # the text works without the name
        return ""


def _user(security: SecurityConfig) -> str:
    try:
        jaas = jaas_of(security)
        if jaas is None:
            return resolve(security.sasl_username or "")
        return "" if jaas.options.get("tokenauth", "").lower() == "true" else jaas.options.get("username", "")
    except KafkaSinkError:  # a reference that cannot be read here; the text works without the name
        return ""


def _pattern(kind: Resource, name: str) -> tuple[str, str]:
    """Returns the resource as kafka-acls options, and as text."""
    if kind is R.CLUSTER:
        return "--cluster", "the cluster"
    drawn = _DRAWN_ID.fullmatch(name) if kind is R.TRANSACTIONAL_ID else None
    option = f"--{kind.replace(' ', '-')}"
    if drawn is not None:
        return f"{option} {drawn['prefix']} --resource-pattern-type prefixed", f"transactional ids {drawn['prefix']}*"
    return f"{option} {shlex.quote(name)}", f"{kind} {name}"
