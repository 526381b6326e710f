"""Cost of TLS and logins: rows per second compared with plain text and Spark's own sink, and the time to the first ack."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pyspark.sql import DataFrame

from benchmarks import contenders
from benchmarks.cells import FIRST_WARM_UPS, WARM_UPS, Cell, Plan, RunOnce, take_turns
from benchmarks.contenders import Target
from benchmarks.data import cached
from benchmarks.environment import BROKER_HEAP_MB, BROKER_SETTINGS, CHECKOUT, Topics, spark_session
from benchmarks.measure import timed
from benchmarks.results import JVM_TLS, SINK_SCRAM, SINK_TLS, START_SASL_SSL, Run, Runs
from spark_kafka_sink.producer.producer import Producer
from tests.kafka.cluster import FULL_SPEED, KafkaCluster
from tests.kafka.kafka import REQUEST_TIMEOUT_S
from tests.kafka_security.certificates import Authority

USER, PASSWORD = "bench", "bench-secret"
MECHANISM = "SCRAM-SHA-512"
_LISTENERS = {"SSL": "SSL", "SASL_SSL": "SASL_SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
_LISTENER_OF = {SINK_TLS: "SSL", SINK_SCRAM: "SASL_PLAINTEXT", JVM_TLS: "SSL", START_SASL_SSL: "SASL_SSL"}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_START_TIMEOUT_S = 60.0
# A program that sends one record. Its imports count, too.
_PROGRAM = """
import json, sys
from spark_kafka_sink.producer.producer import Producer
with Producer(json.loads(sys.argv[1])) as producer:
    producer.send(sys.argv[2], "value").result(30)
"""


@dataclass(frozen=True, slots=True)
class SecureBroker:
    """A broker with a plain-text listener and those of _LISTENERS. settings: a client's settings for each; "" for plain text."""

    topics: Topics
    addresses: Mapping[str, str]
    settings: Mapping[str, Mapping[str, str]]

    def target(self, contender: str, topic: str, cell: Cell) -> Target:
        listener = _LISTENER_OF.get(contender, "")
        return Target(self.addresses[listener], topic, cell.codec, cell.partitions, self.settings[listener])


@contextmanager
def secure_broker() -> Iterator[SecureBroker]:
    """Runs a single real broker, as fast over plain text as that of the other cells."""
    with TemporaryDirectory(prefix="spark-kafka-sink-bench-") as name:
        folder = Path(name)
        authority = Authority("bench-ca")
        ca, store = folder / "ca.pem", folder / "broker.pem"
        ca.write_text(authority.certificate)
        store.write_text(authority.issue("broker", "localhost", "127.0.0.1").key_store)
        settings = {**BROKER_SETTINGS, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        settings["sasl.enabled.mechanisms"] = MECHANISM
        for listener in ("sasl_ssl", "sasl_plaintext"):
            settings[f"listener.name.{listener}.{MECHANISM.lower()}.sasl.jaas.config"] = f"{_SCRAM};"
        made = KafkaCluster(1, settings, listeners=_LISTENERS, heap_mb=BROKER_HEAP_MB, java_options=FULL_SPEED)
        with made as kafka:
            change = UserScramCredentialUpsertion(
                USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
            )
            for done in kafka.admin.alter_user_scram_credentials([change], request_timeout=REQUEST_TIMEOUT_S).values():
                done.result()
            addresses = {"": kafka.bootstrap_servers, **{each: kafka.listener(each) for each in _LISTENERS}}
            yield SecureBroker(Topics(kafka, kafka.log_dir(1)), addresses, _client_settings(ca))


def _client_settings(ca: Path) -> Mapping[str, Mapping[str, str]]:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
    login = {"sasl.mechanism": MECHANISM, "sasl.jaas.config": f'{_SCRAM} username="{USER}" password="{PASSWORD}";'}
    return {
        "": {},
        "SSL": {"security.protocol": "SSL", **trust},
        "SASL_PLAINTEXT": {"security.protocol": "SASL_PLAINTEXT", **login},
        "SASL_SSL": {"security.protocol": "SASL_SSL", **trust, **login},
    }


def security(cells: Sequence[Cell], plan: Plan) -> Iterator[tuple[Cell, Runs]]:
    """Measures cells on demand, on their own broker."""
    with secure_broker() as broker:
        yield from _throughput([cell for cell in cells if cell.name not in _STARTS], plan, broker)
        for cell in cells:
            if cell.name in _STARTS:
                yield cell, _starts(cell, plan, broker, _STARTS[cell.name])


def _throughput(cells: Iterable[Cell], plan: Plan, broker: SecureBroker) -> Iterator[tuple[Cell, Runs]]:
    for cell in cells:
        with spark_session() as spark:
            contenders.prepare(spark)
            rows = plan.rows(cell)
            run = _spark_run(cell, cached(spark, rows, cell.value_bytes), rows, broker)
            yield cell, take_turns(cell, plan, FIRST_WARM_UPS, run)


def _spark_run(cell: Cell, frame: DataFrame, rows: int, broker: SecureBroker) -> RunOnce:
    def run(name: str) -> Run:
        with broker.topics.fresh(cell.partitions, rows * cell.record_bytes) as topic:
            target = broker.target(name, topic, cell)
            one = timed(rows, lambda: contenders.CONTENDERS[name](frame, target))
            broker.topics.check_count(topic, rows)
        return one

    return run


def _starts(cell: Cell, plan: Plan, broker: SecureBroker, start: Callable[[Mapping[str, str], str], None]) -> Runs:
    def run(name: str) -> Run:
        count = plan.rows(cell)
        with broker.topics.fresh(1, 2**20) as topic:
            target = broker.target(name, topic, cell)
            settings = {"bootstrap.servers": target.bootstrap_servers, **target.security}
            begun, cpu = time.perf_counter(), time.process_time()
            for _ in range(count):
                start(settings, topic)
            one = Run(count, time.perf_counter() - begun, time.process_time() - cpu)
            broker.topics.check_count(topic, count)
        return one

    return take_turns(cell, plan, WARM_UPS, run)


def _new_producer(settings: Mapping[str, str], topic: str) -> None:
    with Producer(settings) as producer:
        producer.send(topic, "value").result(30)


def _new_process(settings: Mapping[str, str], topic: str) -> None:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(settings), topic]
    subprocess.run(command, cwd=CHECKOUT, check=True, timeout=_START_TIMEOUT_S)


_STARTS: Mapping[str, Callable[[Mapping[str, str], str], None]] = {"first_ack": _new_producer, "new_process": _new_process}
