"""docs/security.md: its blocks are taken by the producer, and its ACLs are what the code asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import spark_kafka_sink
from spark_kafka_sink.options.producer_options import OPTIONS, producer_config
from spark_kafka_sink.options.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.options.security_config import ALIASES, SECURITY_OPTIONS
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.security.acls import COMMIT_LOG, Rights
from tests.docs.security_blocks import BLOCKS, PAGE, PREFIX, acl_lines
from tests.every import every

KNOWN = {*OPTIONS, *SECURITY_OPTIONS, "ssl.principal.mapping.rules"}  # the last is the brokers'
TEXT = PAGE.read_text(encoding="utf-8")
KINDS = {
    "TLS": ("SSL", None),
    "mTLS": ("SSL", None),
    "SCRAM": ("SASL_SSL", "SCRAM-SHA-512"),
    "SCRAM 2": ("SASL_SSL", "SCRAM-SHA-512"),
    "Confluent Cloud": ("SASL_SSL", "PLAIN"),
    "Confluent Cloud with an identity pool": ("SASL_SSL", "OAUTHBEARER"),
    "OIDC": ("SASL_SSL", "OAUTHBEARER"),
    "Amazon MSK with IAM": ("SASL_SSL", "AWS_MSK_IAM"),
    "Azure Event Hubs": ("SASL_SSL", "PLAIN"),
    "Azure Event Hubs with Entra ID": ("SASL_SSL", "OAUTHBEARER"),
    "Redpanda": ("SASL_SSL", "SCRAM-SHA-256"),
    "Aiven": ("SSL", None),
    "Kerberos": ("SASL_SSL", "GSSAPI"),
    "Google managed Kafka": ("SASL_SSL", "OAUTHBEARER"),
    "Databricks secrets": ("SASL_SSL", "SCRAM-SHA-512"),
    "Delegation tokens": ("SASL_SSL", "SCRAM-SHA-256"),
    "Proxy": ("SSL", None),
}


def test_there_is_a_block_for_each_kind_of_cluster() -> None:
    assert list(BLOCKS) == list(KINDS)


@every("title", KINDS)
def test_the_producer_takes_a_block_as_it_stands(title: str) -> None:
    options = BLOCKS[title].options()
    settings = BLOCKS[title].settings()

    assert [name for name in options if not name.startswith(PREFIX)] == []
    assert [name for name in settings if name not in KNOWN] == []
    assert sink_options({**options, "topic": "events"}).producer.security == producer_config(settings).security
    security = producer_config(settings).security
    protocol, mechanism = KINDS[title]
    assert security.security_protocol == protocol
    assert mechanism is None or security.sasl_mechanism == mechanism


@every("title", KINDS)
def test_no_block_has_a_secret_in_it(title: str) -> None:
    for name, value in BLOCKS[title].settings({"password": "${env:OF_DATABRICKS}"}).items():
        if name in SECURITY_OPTIONS and SECURITY_OPTIONS[name].kind.is_secret:
            assert "${" in value or "keyTab=" in value, name


def test_the_block_and_the_options_of_the_registry_are_accepted() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Schema registry\n")[2].partition("\n## ")[0]
    found: dict[str, Any] = {"options": {"kafka.bootstrap.servers": "localhost:9092"}}
    exec(section.partition("```python\n")[2].partition("```")[0], found)
    assert sink_options(found["with_schemas"]).schemas is not None
    names = re.findall(r"`([a-z][a-z.]+)`", section.partition("| --- |")[2].partition("\n\n")[0])
    known = [*REGISTRY_OPTIONS, *(f"schema.registry.{name}" for name in ALIASES)]
    unknown = [name for name in names if f"schema.registry.{name}" not in known]
    assert len(names) > 10
    assert not unknown


def test_every_option_that_the_page_names_is_one() -> None:
    named = set(re.findall(r"`((?:ssl|sasl|security|proxy)\.[a-z0-9.]+)`", TEXT))

    assert len(named) > 10
    assert [name for name in named if name not in KNOWN] == []


def test_every_text_of_an_error_that_the_page_names_is_one_of_the_code() -> None:
    rows = TEXT.partition("## When it does not connect")[2]
    named = [text for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE) for text in re.findall("`([^`]+)`", row)]
    package = Path(spark_kafka_sink.__file__).parent
    # Texts that a line's end cuts in two are joined.
    code = re.sub(r'"\n\s+f?"', "", "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py")))

    assert len(named) > 10
    assert [text for text in named if text not in code] == []


# Rights

# What the page says that a client needs, as kafka-acls has it.
Grant = tuple[str, str]
ONCE = "Exactly-once"
LEAST = "At-least-once"


def grants(heading: str) -> set[Grant]:
    """The operation and the resource of each ACL under a heading, with those that Kafka takes it to include."""
    found = set()
    for words in acl_lines(heading):
        assert words[:6] == [
            *("kafka-acls", "--bootstrap-server", "broker1.example.com:9093"),
            *("--command-config", "admin.properties", "--add"),
        ]
        assert words[6:8] == ["--allow-principal", "User:sink"]
        pairs = list(zip(words[8::2], words[9::2], strict=True))
        (resource,) = (" ".join(pair) for pair in pairs if pair[0] in ("--topic", "--transactional-id"))
        operations = [value for option, value in pairs if option == "--operation"]
        found |= {(operation, resource) for operation in operations}
        if {"Write", "Read"} & set(operations):
            found.add(("Describe", resource))
    return found


TOPIC, LOG, IDS = "--topic events", "--topic __spark_kafka_sink_commits", "--transactional-id spark-kafka-sink."
A, E = ApiKey, ErrorCode
TASK_ID = "spark-kafka-sink.6f8b1f0a-7c1c-4d9e-9a38-0d2b6a4f7a11.0123456789abcdef.0"
REQUESTS = [
    (LEAST, A.METADATA, E.TOPIC_AUTHORIZATION_FAILED, TOPIC),
    (LEAST, A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, TOPIC),
    *(
        (ONCE, api, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, IDS)
        for api in (
            *(A.FIND_COORDINATOR, A.INIT_PRODUCER_ID, A.ADD_PARTITIONS_TO_TXN, A.PRODUCE, A.END_TXN),
            *(A.DESCRIBE_TRANSACTIONS, A.LIST_TRANSACTIONS),
        )
    ),
    *(
        (ONCE, api, E.TOPIC_AUTHORIZATION_FAILED, LOG)
        for api in (A.METADATA, A.CREATE_TOPICS, A.DESCRIBE_CONFIGS, A.LIST_OFFSETS, A.FETCH, A.PRODUCE)
    ),
]


@every(
    "heading, api, code, resource",
    REQUESTS,
)
def test_the_acls_of_the_page_are_enough_for_each_request(heading: str, api: ApiKey, code: int, resource: str) -> None:
    name = TASK_ID if resource == IDS else resource.removeprefix("--topic ")
    denial = Rights().denied(api, code, name)

    assert denial is not None
    assert resource in denial.acl
    assert (denial.operation, resource) in grants(heading)


def test_no_acl_of_the_page_is_for_nothing() -> None:
    asked = set()
    for heading, api, code, resource in REQUESTS:
        denial = Rights().denied(api, code, "x")
        assert denial is not None
        asked.add((heading, denial.operation, resource))
    assert {(heading, *grant) for heading in (LEAST, ONCE) for grant in grants(heading)} == asked


def test_the_line_of_an_error_about_the_commit_log_is_the_one_of_the_page() -> None:
    assert f"{COMMIT_LOG} {LOG}" in TEXT
