"""Spark writes to secure Kafka: each row of a stream once, over TLS and with a login, in tasks and in the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark.sql import SparkSession

from tests.kafka.witness import read_topic
from tests.kafka_security.logins import Settings, with_jaas
from tests.kafka_security.secure_kafka import LIMITED, PASSWORD, SecureKafka
from tests.spark.session import registered_session
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 300


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with registered_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def options(settings: Settings, topic: str, **more: str) -> Mapping[str, str]:
    return {"topic": topic} | {f"kafka.{name}": value for name, value in settings.items()} | more


def stream(spark: SparkSession, folder: Path, sink: Mapping[str, str]) -> None:
    """Streams ROWS numbers in three micro-batches of two tasks each."""
    (folder / "input").mkdir()
    for batch in range(3):
        part = range(batch * ROWS // 3, (batch + 1) * ROWS // 3)
        (folder / "input" / f"{batch}.json").write_text("".join(f'{{"value": "{row}"}}\n' for row in part))
    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).json(str(folder / "input"))
    writer = rows.repartition(2).writeStream.format("kafka_sink").options(**sink)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination(600)
    finally:
        query.stop()


def expect_each_once(kafka: SecureKafka, topic: str) -> None:
    """EndTxn answers before its markers are there."""

    def values() -> list[int]:
        read = read_topic(kafka.direct_servers, topic, isolation_level="read_committed")
        return sorted(int(record.value or b"-1") for record in read)

    until(values, lambda found: found == list(range(ROWS)), "each once")


def test_a_stream_is_written_exactly_once_over_tls_with_a_login_and_the_rights_of_the_docs(
    spark: SparkSession, granted: SecureKafka, topic: str, tmp_path: Path
) -> None:
    prefix, log_topic = f"{topic}-ids", f"{topic}-log"
    operations = AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ, AclOperation.WRITE
    granted.grant(ResourceType.TOPIC, topic, AclOperation.WRITE)
    granted.grant(ResourceType.TOPIC, log_topic, *operations)
    granted.grant(ResourceType.TRANSACTIONAL_ID, f"{prefix}.", AclOperation.WRITE, AclOperation.DESCRIBE, prefixed=True)
    login = with_jaas(granted, "SASL_SSL", "SCRAM-SHA-512", LIMITED, PASSWORD)
    more = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": prefix, "commit.log.topic": log_topic}
    stream(spark, tmp_path, options(login, topic, **more))
    expect_each_once(granted, topic)
