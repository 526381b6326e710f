"""ACLs as arguments of kafka-acls, and the filters that find them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.broker.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    parse_acls,
)
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.errors import OptionError
from tests.every import every

ANA = "User:ana"
EVENTS = Acl(ANA, AclOperation.WRITE, ResourceType.TOPIC, "events")


def test_the_arguments_of_kafka_acls() -> None:
    text = "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:ana --operation Write --topic events"

    assert parse_acls(text) == [EVENTS]


@every(
    "text, acls",
    [
        (
            "--deny-principal User:ana --deny-host 10.0.0.1 --operation read --group g --resource-pattern-type prefixed",
            [Acl(ANA, AclOperation.READ, ResourceType.GROUP, "g", PatternType.PREFIXED, Permission.DENY, "10.0.0.1")],
        ),
        (
            "--allow-principal=User:ana --topic=a --topic=b --operation=describe_configs",
            [Acl(ANA, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name) for name in "ab"],
        ),
        ("--allow-principal User:ana --transactional-id t", [Acl(ANA, AclOperation.ALL, ResourceType.TRANSACTIONAL_ID, "t")]),
        (
            "--allow-principal User:ana --operation IdempotentWrite --cluster",
            [Acl(ANA, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)],
        ),
        (
            "--allow-principal User:ana --operation Alter --cluster kafka-cluster --resource-pattern-type prefixed",
            [Acl(ANA, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)],
        ),
    ],
)
def test_what_they_mean(text: str, acls: list[Acl]) -> None:
    assert parse_acls(text) == acls


def test_a_producer_and_a_consumer_are_several() -> None:
    found = parse_acls("--allow-principal User:ana --producer --idempotent --topic t --transactional-id x")
    operations = {(acl.resource_type.name, acl.operation.name) for acl in found}

    assert operations == {
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    }
    consumer = {
        (acl.resource_type.name, acl.operation.name)
        for acl in parse_acls("--allow-principal User:b --consumer --topic t --group g")
    }
    assert consumer == {("TOPIC", "READ"), ("TOPIC", "DESCRIBE"), ("GROUP", "READ")}


@every(
    "text, words",
    [
        ("--operation Write --topic t", "no principal is given"),
        ("--allow-principal User:ana --operation Write", "no resource is given"),
        ("--allow-principal ana --operation Write --topic t", "'ana' is not a valid principal; write it like User:ana"),
        ("--allow-principal User:ana --operation Wriet --topic t", "'Wriet' must be one of"),
        ("--allow-principal User:ana --operation Any --topic t", "is for filters"),
        ("--allow-principal User:ana --topic t --resource-pattern-type match", "must be literal or prefixed"),
        ("--allow-principal User:ana --topic", "--topic has no value"),
        ("--allow-principal User:ana --tpoic t", "--tpoic is not a supported argument of kafka-acls"),
        ("--allow-principal 'User:ana --topic t", "No closing quotation"),
    ],
)
def test_what_is_none(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_acls(text)
    with pytest.raises(OptionError, match=words):
        BrokerConfig(acls=[text])


acls = st.builds(
    Acl,
    st.sampled_from(["User:ana", "User:*", 'User:CN=a b,O="x"', "Group:g"]),
    st.sampled_from([each for each in AclOperation if each is not AclOperation.ANY]),
    st.sampled_from([each for each in ResourceType if each not in (ResourceType.ANY, ResourceType.CLUSTER)]),
    st.sampled_from(["*", "a", "a b", "ab", "'", "$x"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
    st.sampled_from(["*", "127.0.0.1", "::1"]),
)


@given(acls)
def test_an_acl_is_written_as_it_is_read(acl: Acl) -> None:
    assert parse_acls(str(acl)) == [acl]


@given(acls)
def test_a_filter_finds_it_by_each_of_its_fields(acl: Acl) -> None:
    exact = AclFilter(
        acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission
    )

    assert exact.matches(acl)
    assert AclFilter().matches(acl)
    assert not AclFilter(principal="User:nobody").matches(acl)
    assert not AclFilter(host="10.9.9.9").matches(acl)


@every(
    "pattern, name, found",
    [
        (PatternType.LITERAL, "events", ["events"]),
        (PatternType.PREFIXED, "ev", ["ev*"]),
        (PatternType.ANY, "ev", ["ev*"]),
        (PatternType.MATCH, "events", ["events", "ev*", "*"]),
        (PatternType.ANY, None, ["events", "ev*", "*"]),
    ],
)
def test_patterns_in_filters(pattern: PatternType, name: str | None, found: list[str]) -> None:
    there = {
        "events": EVENTS,
        "ev*": Acl(ANA, AclOperation.READ, ResourceType.TOPIC, "ev", PatternType.PREFIXED),
        "*": Acl(ANA, AclOperation.READ, ResourceType.TOPIC, "*"),
    }

    assert [text for text, acl in there.items() if AclFilter(ResourceType.TOPIC, name, pattern).matches(acl)] == found
