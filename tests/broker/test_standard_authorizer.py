"""Who may do what by which ACLs."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.broker.acl import CLUSTER_NAME, AclOperation, ResourceType, StandardAuthorizer, parse_acls
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_services import authorizer_of
from tests.every import every

HOST = "127.0.0.1"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def authorizer(*texts: str, super_users: tuple[str, ...] = (), allow_if_no_acl: bool = False) -> StandardAuthorizer:
    acls = [acl for text in texts for acl in parse_acls(text)]
    return StandardAuthorizer(lambda: acls, super_users, allow_if_no_acl=allow_if_no_acl)


def may(made: StandardAuthorizer, operation: AclOperation, name: str = "events", *, who: str = "ana", host: str = HOST) -> bool:
    return made.is_allowed(f"User:{who}", host, operation, TOPIC, name)


@pytest.mark.parametrize("pattern", ["--topic events", "--topic '*'", "--topic ev --resource-pattern-type prefixed"])
def test_patterns(pattern: str) -> None:
    made = authorizer(f"--allow-principal User:ana --operation Write {pattern}")

    assert may(made, WRITE)
    assert not may(made, READ)
    assert not may(made, WRITE, who="bob")
    assert may(made, WRITE, "other") is ("*" in pattern)
    assert may(made, WRITE, "events-2") is ("events" not in pattern)


def test_everyone_and_hosts() -> None:
    made = authorizer("--allow-principal 'User:*' --allow-host 10.0.0.1 --operation Read --topic events")

    assert may(made, READ, who="ANONYMOUS", host="10.0.0.1")
    assert not may(made, READ, who="ANONYMOUS")


@pytest.mark.parametrize("denied", ["--topic events", "--topic '*'", "--topic e --resource-pattern-type prefixed"])
def test_deny_wins(denied: str) -> None:
    made = authorizer(
        "--allow-principal User:ana --operation All --topic events", f"--deny-principal 'User:*' --operation Write {denied}"
    )

    assert not may(made, WRITE)
    assert may(made, READ)


@every("granted", ["Read", "Write", "Delete", "Alter", "Describe", "All"])
def test_what_implies_describe(granted: str) -> None:
    assert may(authorizer(f"--allow-principal User:ana --operation {granted} --topic events"), DESCRIBE)


def test_without_any_acl_only_a_setting_allows() -> None:
    assert not may(authorizer(), READ)
    assert may(authorizer(allow_if_no_acl=True), READ)


def test_super_users_may_do_what_is_denied() -> None:
    made = authorizer("--deny-principal 'User:*' --operation All --topic '*'", super_users=("User:root",))

    assert may(made, WRITE, who="root")
    assert made.is_allowed_on_any("User:root", HOST, WRITE, TOPIC)


@every(
    "texts, allowed",
    [
        ([], False),
        (["--allow-principal User:ana --operation Write --topic t"], True),
        (["--allow-principal User:ana --operation All --topic t --resource-pattern-type prefixed"], True),
        (["--allow-principal User:ana --operation Read --topic t"], False),
        (["--allow-principal User:ana --operation Write --group t"], False),
        (
            ["--allow-principal User:ana --operation Write --topic t", "--deny-principal User:ana --operation Write --topic t"],
            False,
        ),
        (
            ["--allow-principal User:ana --operation Write --topic t", "--deny-principal User:ana --operation Write --topic u"],
            True,
        ),
        (
            [
                "--allow-principal User:ana --operation Write --topic team-a",
                "--deny-principal 'User:*' --operation All --topic team --resource-pattern-type prefixed",
            ],
            False,
        ),
        (
            [
                "--allow-principal User:ana --operation Write --topic t --resource-pattern-type prefixed",
                "--deny-principal User:ana --operation Write --topic t",
            ],
            True,
        ),
        (
            [
                "--allow-principal User:ana --operation Write --topic t",
                "--deny-principal User:ana --operation Write --topic '*'",
            ],
            False,
        ),
        (["--allow-principal User:ana --operation Write --topic '*'", "--deny-principal User:ana --topic hardcode"], True),
    ],
)
def test_writing_to_any_topic(texts: list[str], allowed: bool) -> None:
    assert authorizer(*texts).is_allowed_on_any("User:ana", HOST, WRITE, TOPIC) is allowed


def test_a_refusal_is_logged_with_all_that_is_needed_to_grant_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        authorizer().is_allowed("User:ana", HOST, AclOperation.ALTER, CLUSTER, CLUSTER_NAME)

    text = "Principal = User:ana is Denied operation = ALTER from host = 127.0.0.1 on resource = CLUSTER:LITERAL:kafka-cluster"
    assert caplog.messages == [text]


def test_a_broker_has_one_if_any_of_its_settings_is_given() -> None:
    assert authorizer_of(BrokerConfig(), tuple) is None
    for config in (BrokerConfig(acls=[]), BrokerConfig(super_users=("User:root",)), BrokerConfig(authorizer_class_name="x")):
        made = authorizer_of(config, tuple)
        assert made is not None
        assert not may(made, READ)
    open_to_all = authorizer_of(BrokerConfig(acls=[], allow_everyone_if_no_acl_found=True), tuple)
    assert open_to_all is not None
    assert may(open_to_all, READ)
