"""Before a stream's first micro-batch writes: a commit log or cluster that could not commit it is an error."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.errors import AuthorizationError, DeadlineError, KafkaSinkError, OptionError
from spark_kafka_sink.exactly_once.commit_log import partition_of
from spark_kafka_sink.exactly_once.commit_record import CommitRecordError, encode_key
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.small_batches import NewRecord
from spark_kafka_sink.spark.plan.commits import check_job
from spark_kafka_sink.spark.plan.data_source import KafkaSinkDataSource
from tests.exactly_once.opened import client_of, new_id, soon, writer
from tests.kafka.acls import KafkaWithAcls
from tests.kafka.embedded import EmbeddedKafka
from tests.kafka.fixtures import NewTopic, embedded_broker_kind, on_real_kafka
from tests.kafka.kafka import Kafka

broker_kind = embedded_broker_kind(
    "a second for each; one stays, tests/exactly_once reads such logs and tests/kafka_security has the rights on real Kafka"
)

SCHEMA = StructType([StructField("value", BinaryType())])
INSTEAD = "set delivery.guarantee=at-least-once"


@pytest.fixture(autouse=True)
def _plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process in which Spark plans."""
    (tmp_path / "spark").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))


def plan(kafka: Kafka, topic: str, log: str = "", checkpoint: Path | None = None, **more: str) -> None:
    """Plans a micro-batch."""
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": topic,
        "commit.log.topic": log or f"{topic}-commits",
        "commit.log.partitions": "2",
    }
    given |= {name.replace("__", "."): value for name, value in more.items()}
    if checkpoint is not None:
        given["checkpointLocation"] = f"file:{checkpoint}"
    KafkaSinkDataSource(options=CaseInsensitiveDict(given)).streamWriter(SCHEMA, False)


def checkpoint_of(query_id: str, folder: Path) -> Path:
    """As Spark begins one."""
    made = folder / "checkpoint"
    made.mkdir()
    (made / "metadata").write_text(json.dumps({"id": query_id}))
    return made


def put(kafka: Kafka, topic: str, partition: int, key: bytes, value: bytes) -> None:
    """As another program writes."""
    other = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    other.produce(topic, value, key, partition=partition)
    assert other.flush(30) == 0


def test_a_log_that_is_right_is_made_and_then_asked_about_no_more(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    plan(kafka, topic)
    log = kafka.metadata(f"{topic}-commits").topics[f"{topic}-commits"]
    assert len(log.partitions) == 2
    kafka.delete_topic(f"{topic}-commits")
    plan(kafka, topic)  # a stream that runs survives an outage, and its commit tells the rest
    assert f"{topic}-commits" not in kafka.metadata().topics


@on_real_kafka
@pytest.mark.fault("spark", "an unusable commit log, before the first batch's tasks")
@pytest.mark.parametrize("tells_query", [True, False])
def test_a_topic_that_cannot_be_the_log_is_an_error(kafka: Kafka, new_topic: NewTopic, tmp_path: Path, tells_query: bool) -> None:
    topic, few = new_topic(), new_topic(1, config={"cleanup.policy": "compact"})
    checkpoint = checkpoint_of(str(uuid.uuid4()), tmp_path) if tells_query else None
    for _ in range(2):  # an error is not remembered
        with pytest.raises(OptionError, match=r"option commit\.log\.topic: topic .* has cleanup\.policy=delete"):
            plan(kafka, topic, new_topic(2, config={"cleanup.policy": "delete"}), checkpoint)
    with pytest.raises(OptionError, match=r"option commit\.log\.partitions: topic .* has 1 partition, not 2: set it to 1"):
        plan(kafka, topic, few, checkpoint)


@pytest.mark.fault("spark", "an unusable commit log, before the first batch's tasks")
def test_a_topic_with_nothing_but_other_records_is_no_log(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, log = new_topic(), new_topic(2, config={"cleanup.policy": "compact"})
    put(kafka, log, 0, b"user-7", b"{}")
    with pytest.raises(CommitRecordError, match="the topic is not a commit log, or not exclusively"):
        plan(kafka, topic, log)


@pytest.mark.fault("spark", "an unusable commit log, before the first batch's tasks")
@pytest.mark.parametrize("is_own", [True, False])
def test_records_that_cannot_be_read_stop_the_query_that_they_belong_to(
    kafka: Kafka, new_topic: NewTopic, tmp_path: Path, is_own: bool
) -> None:
    topic, log = new_topic(), new_topic(2, config={"cleanup.policy": "compact"})
    own, other = str(uuid.uuid4()), str(uuid.uuid4())
    of = own if is_own else other
    put(kafka, log, partition_of(of, 2), encode_key(of, 0), b'{"format": 99}')
    checkpoint = checkpoint_of(own, tmp_path)
    if is_own:
        with pytest.raises(CommitRecordError):
            plan(kafka, topic, log, checkpoint)
    else:
        plan(kafka, topic, log, checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize("tells_query", [True, False])
def test_a_dead_drivers_transaction_in_the_log_keeps_no_stream_from_beginning(
    kafka: Kafka, new_topic: NewTopic, tmp_path: Path, tells_query: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends within 40 s, and commits wait for longer."""
    topic, log, own = new_topic(), new_topic(2, config={"cleanup.policy": "compact"}), str(uuid.uuid4())
    with client_of(kafka) as client:
        dead = writer(client, log, new_id(), partition=partition_of(own, 2))
        dead.append([NewRecord(encode_key(str(uuid.uuid4()), 0), b"{}", 0)], soon())
        checkpoint = checkpoint_of(own, tmp_path) if tells_query else None
        plan(kafka, topic, log, checkpoint, kafka__max__block__ms="3000")
        TransactionClient(client).end([dead.handle()], False, soon())
    assert "an open transaction blocks readers" in caplog.text


DENIED = [
    (ResourceType.TOPIC, AclOperation.WRITE, "not authorized for Write on topic"),
    (ResourceType.TOPIC, AclOperation.READ, "not authorized for Read on topic"),
    (ResourceType.TOPIC, AclOperation.DESCRIBE_CONFIGS, "not authorized for DescribeConfigs on topic"),
    (ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE, f"not authorized for Describe on transactional ids .*{INSTEAD}"),
    (ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, f"not authorized for Write on transactional ids .*{INSTEAD}"),
]


@pytest.mark.fault("spark", "an unusable commit log, before the first batch's tasks")
@pytest.mark.parametrize(("kind", "operation", "match"), DENIED, ids=[f"{kind.name}-{each.name}" for kind, each, _ in DENIED])
def test_a_missing_right_is_an_error_for_streams_and_jobs(
    kafka_with_acls: KafkaWithAcls, kind: ResourceType, operation: AclOperation, match: str
) -> None:
    topic, log = new_id("events"), new_id("commits")
    kafka_with_acls.create_topic(topic, 1, 1, {})
    kafka_with_acls.create_topic(log, 2, 1, {"cleanup.policy": "compact"})
    servers = {"kafka.bootstrap.servers": kafka_with_acls.bootstrap_servers, "delivery.guarantee": "exactly-once"}
    names = {"transactional.id.prefix": topic, "commit.log.topic": log, "commit.log.partitions": "2"}
    with kafka_with_acls.denied(kind, log if kind is ResourceType.TOPIC else f"{topic}.", operation, prefixed=True):
        with pytest.raises(AuthorizationError, match=match):
            plan(kafka_with_acls, topic, log)
        with pytest.raises(AuthorizationError, match=match):
            check_job(sink_options(servers | names), MicroBatch.of_new_job())
    plan(kafka_with_acls, topic, log)


# Clusters without transactions


@pytest.fixture
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(in_memory=True) as made:
        yield made


@pytest.mark.fault("transaction", "FindCoordinator or InitProducerId is refused: the error names delivery.guarantee")
@pytest.mark.embedded
@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
)
@pytest.mark.parametrize("api", [ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID])
def test_a_cluster_that_refuses_transactions_is_an_error_that_names_the_guarantee(
    broker: EmbeddedKafka, api: ApiKey, code: ErrorCode
) -> None:
    broker.create_topic(topic := new_id("events"), 1, 1, {})
    refused = broker.broker.faults.fail(api, code, times=None)
    with pytest.raises(KafkaSinkError, match=f"{code.name}.*{INSTEAD}") as caught:
        plan(broker, topic)
    assert refused.hits == 1
    assert caught.value.facts["error"] == code.name


@pytest.mark.fault("transaction", "FindCoordinator or InitProducerId is refused: the error names delivery.guarantee")
@pytest.mark.embedded
@pytest.mark.slow
def test_so_is_one_that_closes_the_connection(broker: EmbeddedKafka) -> None:
    broker.create_topic(topic := new_id("events"), 1, 1, {})
    broker.broker.faults.cut_before(ApiKey.FIND_COORDINATOR, times=None)
    with pytest.raises(DeadlineError, match=f"FIND_COORDINATOR: .*{INSTEAD}"):
        plan(broker, topic, kafka__max__block__ms="2000")
