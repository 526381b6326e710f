"""What each API answers when one right is missing, as Kafka's own authorizer and KafkaApis answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation as ConfluentOperation
from confluent_kafka.admin import ResourceType as ConfluentResource

from spark_kafka_sink.broker.acl import Acl, AclFilter, AclOperation, Permission, ResourceType, parse_acls
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.apis.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from spark_kafka_sink.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest
from spark_kafka_sink.protocol.apis.topics import CreatableTopic, CreateTopicsRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.as_kafka.pair import eventually
from tests.broker.handlers.test_authorization import CASES, Case, codes
from tests.broker.network.client import Client
from tests.kafka.acls import KafkaWithAcls

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.whole("tests/broker/handlers/test_authorization.py has the same table, without Kafka"),
]

NEEDED_TO_GIVE_IT_BACK = ("Alter --cluster", "ClusterAction --cluster", "Describe --cluster")
"""Rights without which ACLs could not be changed any more: ANONYMOUS is everybody here, the broker among them."""
GIVEN_BY_THE_CLUSTER = (
    (ApiKey.METADATA, "Create --topic new"),
    (ApiKey.CREATE_TOPICS, "Create --topic new"),
    (ApiKey.DELETE_TOPICS, "Delete --topic t"),
)
"""Rights that one need not have who may create or delete in the cluster, which everybody may here."""

Ask = Callable[[Case, Acl], list[ErrorCode]]
"""What a broker answers without one right."""


def prepared(client: Client) -> Any:
    """The topic t, the group g with an offset in it, and the transactional id x are there; as a case's body wants to see them."""
    client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
    asked = [(FindCoordinatorRequest("g"), 3), (FindCoordinatorRequest("x", 1), 3)]
    offsets = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 5)])]

    def is_there() -> bool:
        found = [client.ask(ApiKey.FIND_COORDINATOR, version, body) for body, version in asked]
        found.append(client.ask(ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest("g", topics=offsets)))
        found.append(client.ask(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest("x", 60_000)))
        return set(codes(found)) == {ErrorCode.NONE}

    eventually(is_there)
    metadata: Any = client.ask(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="t")]))
    return SimpleNamespace(cluster=SimpleNamespace(image=SimpleNamespace(topics={"t": metadata.topics[0]})))


def asked(client: Client, case: Case, rig: Any) -> list[ErrorCode]:
    version = ALL_APIS[case.key].max_version if case.version is None else case.version
    return sorted(codes(client.ask(case.key, version, case.body(rig))))


@pytest.fixture(scope="module")
def kafka_answers() -> Iterator[Ask]:
    with KafkaWithAcls() as kafka, Client.at(kafka.bootstrap_servers) as client:
        rig = prepared(client)

        def ask(case: Case, missing: Acl) -> list[ErrorCode]:
            # librdkafka calls the cluster a broker.
            kind = ConfluentResource["BROKER" if missing.resource_type is ResourceType.CLUSTER else missing.resource_type.name]
            with kafka.denied(kind, missing.resource_name, ConfluentOperation[missing.operation.name]):
                return asked(client, case, rig)

        yield ask


@pytest.fixture(scope="module")
def embedded_answers() -> Iterator[Ask]:
    config = BrokerConfig(acls=[], allow_everyone_if_no_acl_found=True)
    with EmbeddedBroker(config=config) as broker, Client.at(broker.bootstrap_servers) as client:
        rig = prepared(client)

        def ask(case: Case, missing: Acl) -> list[ErrorCode]:
            kind, name = missing.resource_type, missing.resource_name
            denied = Acl(missing.principal, missing.operation, kind, name, permission=Permission.DENY)
            broker.cluster.add_acls([denied, Acl(missing.principal, AclOperation.ALL, kind, name)])
            try:
                return asked(client, case, rig)
            finally:
                broker.cluster.delete_acls(AclFilter())

        yield ask


def test_every_api_without_each_of_its_rights(kafka_answers: Ask, embedded_answers: Ask) -> None:
    differing, refused = [], 0
    for case in CASES:
        for needed in case.needed:
            if needed in NEEDED_TO_GIVE_IT_BACK or (case.key, needed) in GIVEN_BY_THE_CLUSTER:
                continue
            (missing,) = parse_acls(f"--allow-principal User:ANONYMOUS --operation {needed}")
            kafkas, ours = kafka_answers(case, missing), embedded_answers(case, missing)
            refused += any(code.name.endswith("_AUTHORIZATION_FAILED") for code in kafkas)
            if ours != kafkas:
                differing.append((str(case), needed, "Kafka", [c.name for c in kafkas], "embedded", [c.name for c in ours]))

    assert not differing, "\n".join(map(str, differing))
    assert refused > 35
