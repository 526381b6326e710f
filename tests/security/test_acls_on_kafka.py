"""Kafka's own kafka-acls takes the lines of errors and of docs/security.md, and they grant what they say.

But for one about the cluster: with an ACL on it, this cluster, which has no super user, is closed to its own brokers.
"""

from __future__ import annotations

import shlex

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, ResourcePatternType, ResourceType

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.security.acls import COMMIT_LOG, Rights
from tests.docs.security_blocks import acl_lines
from tests.kafka import java
from tests.kafka.acls import KafkaWithAcls, acls

pytestmark = [pytest.mark.kafka, pytest.mark.whole("a Java program for each line; tests/security/test_acls.py has the lines")]

A, E = ApiKey, ErrorCode
TASK = "acls.6f8b1f0a-7c1c-4d9e-9a38-0d2b6a4f7a11.0123456789abcdef.0"
Granted = tuple[str, str, str, str]
"""Kind, name, pattern and operation, by confluent-kafka's names."""


def granted(acl: AclBinding) -> Granted:
    kind, pattern, operation = acl.restype, acl.resource_pattern_type, acl.operation
    assert isinstance(kind, ResourceType)
    assert isinstance(pattern, ResourcePatternType)
    assert isinstance(operation, AclOperation)
    return kind.name, acl.name, pattern.name, operation.name


def run_line(kafka: KafkaWithAcls, line: str) -> set[Granted]:
    """Runs a line of kafka-acls without its settings; returns what it has granted."""
    words = shlex.split(line)
    program, *arguments = [word for word in words if word not in ("--command-config", "admin.properties")]
    assert program == "kafka-acls"
    arguments[arguments.index("--bootstrap-server") + 1] = kafka.bootstrap_servers
    kafka.allow_everything()
    try:
        java.run("org.apache.kafka.tools.AclCommand", *arguments, timeout_s=60)
        kafka.wait_for(lambda: bool(acls(kafka)), "an ACL", 30)
        return {granted(acl) for acl in acls(kafka)}
    finally:
        kafka.allow_everything()


@pytest.mark.parametrize(
    ("api", "code", "name", "grants", "wanted"),
    [
        (
            *(A.METADATA, E.TOPIC_AUTHORIZATION_FAILED, "t", None),
            {("TOPIC", "t", "LITERAL", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")},
        ),
        (
            *(A.END_TXN, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TASK, None),
            {("TRANSACTIONAL_ID", "acls.", "PREFIXED", operation) for operation in ("WRITE", "DESCRIBE")},
        ),
        (
            *(A.FETCH, E.TOPIC_AUTHORIZATION_FAILED, "log", COMMIT_LOG),
            {("TOPIC", "log", "LITERAL", operation) for operation in ("CREATE", "DESCRIBE_CONFIGS", "READ", "WRITE")},
        ),
        (*(A.TXN_OFFSET_COMMIT, E.GROUP_AUTHORIZATION_FAILED, "g", None), {("GROUP", "g", "LITERAL", "READ")}),
    ],
    ids=["topic", "transactional ids", "commit log", "group"],
)
def test_kafka_takes_the_line_of_an_error(
    kafka_with_acls: KafkaWithAcls, api: ApiKey, code: int, name: str, grants: str | None, wanted: set[Granted]
) -> None:
    denial = Rights((kafka_with_acls.bootstrap_servers,), "User:CN=ana, O=A & B").denied(api, code, name, grants=grants)

    assert denial is not None
    assert run_line(kafka_with_acls, denial.acl) == wanted


@pytest.mark.parametrize("heading", ["At-least-once", "Exactly-once"])
def test_kafka_takes_the_lines_of_the_page(kafka_with_acls: KafkaWithAcls, heading: str) -> None:
    for words in acl_lines(heading):
        assert run_line(kafka_with_acls, shlex.join(words))
