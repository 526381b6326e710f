"""A broker that was told to be an older Kafka says and does what that one does, as far as clients can see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.kafka_release import RELEASES
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsResponse
from spark_kafka_sink.protocol.apis.transactions import EndTxnRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.client import Client, api_versions_frame, request_frame
from tests.broker.transaction.transactor import Transactor
from tests.every import every
from tests.kafka.kafka import Kafka
from tests.waiting import until

E = ErrorCode
END_TXN_V4 = request_frame(ApiKey.END_TXN, 4, EndTxnRequest("t", 1, 0, committed=True))

KAFKAS_OWN: Final[dict[str, dict[str, tuple[int, int]]]] = json.loads(
    (Path(__file__).parent / "kafka_api_versions.json").read_text()
)
"""What brokers of each release serve: the stable versions in the message definitions of kafka-clients at its last patch release.
Up to 3.2 they are those of brokers with ZooKeeper, from 3.3 on of brokers with KRaft."""


def ranges(answer: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
    return {
        ApiKey(each.api_key).name: (each.min_version, each.max_version) for each in answer.api_keys if each.api_key in ALL_APIS
    }


def served_of(release: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Of Kafka's ranges what this broker can serve as well: it does not speak versions that Kafka 4 has dropped."""
    by_name = {api.key.name.replace("_", ""): api for api in ALL_APIS.values()}
    both = {by_name[name.upper()]: versions for name, versions in release.items() if name.upper() in by_name}
    # Produce is told from v0 on, for the sake of old clients.
    return {
        api.key.name: (0 if api.key is ApiKey.PRODUCE else max(oldest, api.min_version), newest)
        for api, (oldest, newest) in both.items()
    }


@every("release", RELEASES)
def test_the_versions_are_those_of_the_release(release: str) -> None:
    with EmbeddedBroker(like=release) as broker, Client.at(broker.bootstrap_servers) as client:
        assert ranges(client.api_versions(0 if release < "2.4" else 3)) == served_of(KAFKAS_OWN[release])


def test_without_a_word_it_is_the_newest() -> None:
    with EmbeddedBroker() as broker, Client.at(broker.bootstrap_servers) as client:
        assert ranges(client.api_versions()) == served_of(KAFKAS_OWN[RELEASES[-1]])


def test_kafka_itself_serves_what_is_said_of_its_release(kafka: Kafka) -> None:
    with Client.at(kafka.bootstrap_servers) as client:
        assert ranges(client.api_versions()) == served_of(KAFKAS_OWN["4.1"])


def test_a_version_that_the_release_does_not_have_closes_the_connection() -> None:
    with EmbeddedBroker(like="3.7") as broker, Client.at(broker.bootstrap_servers) as client:
        client.send(END_TXN_V4)
        assert client.is_closed_by_broker()
    with EmbeddedBroker(like="3.9") as broker, Client.at(broker.bootstrap_servers) as client:
        client.send(END_TXN_V4)
        assert client.receive_response(ApiKey.END_TXN, 4)


@pytest.mark.parametrize(("release", "newest"), [("3.7", 3), ("3.9", 4)])
def test_a_client_of_tomorrow_is_told_the_versions_of_api_versions(release: str, newest: int) -> None:
    """Otherwise it asks in a version that the broker does not have for ever."""
    with EmbeddedBroker(like=release) as broker, Client.at(broker.bootstrap_servers) as client:
        frame = bytearray(api_versions_frame())
        frame[6:8] = (99).to_bytes(2, "big")  # behind the frame's size and the API's key
        client.send(bytes(frame))
        answer: Any = client.receive_response(ApiKey.API_VERSIONS, 0)[1]
        assert (answer.error_code, ranges(answer)) == (E.UNSUPPORTED_VERSION, {"API_VERSIONS": (0, newest)})


# Transactions


def test_at_2_1_a_late_record_opens_a_transaction_that_nobody_ends() -> None:
    """The end of a transaction does not fence its producer there, and nobody asks the coordinator about the next record."""
    with EmbeddedBroker(like="2.1") as broker, Client.at(broker.bootstrap_servers) as client:
        broker.create_topic("topic", 2)
        txn = Transactor(client, "t", "topic")
        who = txn.init(version=1).producer
        assert txn.add(who, 0, version=1) == [E.NONE]
        assert txn.produce(who, version=7) is E.NONE
        assert txn.abort(who, version=1).code is E.NONE
        until(lambda: _stable_offset(client), lambda offset: offset == 2, "the marker")
        assert txn.produce(who, sequence=1, value="late", version=7) is E.NONE
        assert txn.abort(who, version=1).code is E.NONE  # again: there is nothing to abort
        assert _stable_offset(client) == 2
        assert txn.committed() == []


def _stable_offset(client: Client) -> int:
    asked = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, isolation_level=1, topics=[FetchTopic("topic", partitions=[asked])])
    answer: Any = client.ask(ApiKey.FETCH, 10, request)
    offset: int = answer.responses[0].partitions[0].last_stable_offset
    return offset


# Settings


@every(
    "settings, text",
    [
        ({"like": "3.8"}, r"like='3\.8' is not supported; it must be one of 2\.1, 3\.7, 3\.9, 4\.1$"),
        (
            {"like": "3.9", "transaction_version": 2},
            "transaction.version=2 is not supported: Kafka 3.9 does not have the feature",
        ),
        ({"transaction_version": 3}, "transaction.version=3 is not supported: the newest level is 2"),
    ],
)
def test_what_a_release_does_not_have_is_an_error(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        BrokerConfig(**settings)


def test_a_broker_that_is_told_a_release_keeps_its_settings() -> None:
    config = BrokerConfig(num_partitions=3, transaction_version=1)
    with EmbeddedBroker(config=config, like="4.1") as broker, Client.at(broker.bootstrap_servers) as client:
        assert {each.name: each.max_version_level for each in client.api_versions().finalized_features} == {
            "metadata.version": 27,
            "transaction.version": 1,
        }
        assert broker.cluster.config.num_partitions == 3
