"""`check(options)`: what it finds on brokers of each kind, and what it says to do. None of these tests needs Spark."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_kafka_sink.broker import BrokerConfig, CertificateAuthority, EmbeddedBroker
from spark_kafka_sink.broker.acl import parse_acls
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.spark.check import CheckReport, check
from spark_kafka_sink.spark.checks.report import CheckLine, Status
from tests.kafka.acls import KafkaWithAcls
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.ports import free_ports
from tests.kafka.witness import read_topic
from tests.network.black_hole import black_hole
from tests.planted_secrets import MARK, PLANTED

EXACTLY_ONCE = {"delivery.guarantee": "exactly-once"}
NO_AUTO_CREATION = BrokerConfig(auto_create_topics_enable=False)
USERS = {"sink": "word"}


def settings(broker: EmbeddedBroker, **more: str) -> dict[str, str]:
    return {**{f"kafka.{name}": value for name, value in broker.client_settings.items()}, "topic": "events", **more}


def lines(report: CheckReport, name: str) -> list[CheckLine]:
    return [line for line in report.lines if line.name == name]


def line(report: CheckReport, name: str) -> CheckLine:
    (found,) = lines(report, name)
    return found


def statuses(report: CheckReport) -> dict[str, Status]:
    return {each.name: each.status for each in report.lines}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=NO_AUTO_CREATION) as made:
        made.create_topic("events", 4)
        yield made


# All is well


def test_a_topic_that_can_be_written_to(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    report = check({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}, timeout=30)
    assert report.ok, report
    assert f"topic {topic!r} has 3 partitions" in line(report, "topic").text
    assert "Write" in lines(report, "rights")[0].text
    assert read_topic(kafka.direct_servers, topic) == []


def test_exactly_once_is_possible(kafka: Kafka, new_topic: NewTopic) -> None:
    """The right to use transactional ids is asked for with a request that brokers refuse after they have looked at it."""
    topic, log = new_topic(), new_topic(2, config={"cleanup.policy": "compact"})
    options = {
        **EXACTLY_ONCE,
        "commit.log.topic": log,
        "commit.log.partitions": "2",
        "transactional.id.prefix": f"p-{topic}"[:60],
    }
    report = check({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **options}, timeout=30)
    assert report.ok, report
    assert statuses(report) == {
        **dict.fromkeys(("options", "brokers", "TLS", "login", "topic", "sizes", "rights"), Status.OK),
        **dict.fromkeys(("exactly-once", "commit log"), Status.OK),
        **dict.fromkeys(("columns", "Python"), Status.NOT_CHECKED),
    } | ({"timestamps": Status.OK} if lines(report, "timestamps") else {})


def test_a_commit_log_that_is_not_there_is_not_made(broker: EmbeddedBroker) -> None:
    report = check(settings(broker, **EXACTLY_ONCE))
    assert "the first commit creates it" in line(report, "commit log").text
    assert list(broker.cluster.image.topics) == ["events"] or "__spark_kafka_sink_commits" not in broker.cluster.image.topics


# Options


def test_a_wrong_option_is_the_only_line() -> None:
    report = check({"kafka.bootstrap.server": "127.0.0.1:1"})
    assert [each.name for each in report.failed] == ["options"]
    assert report.wrong_options
    assert "did you mean kafka.bootstrap.servers?" in line(report, "options").text
    assert len(report.lines) == 1


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_must_be_positive(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout"):
        check({}, timeout=timeout)


def test_without_the_option_topic_no_topic_is_checked(broker: EmbeddedBroker) -> None:
    options = settings(broker)
    del options["topic"]
    assert line(check(options), "topic").status is Status.NOT_CHECKED


# Brokers


def test_a_port_where_nobody_listens() -> None:
    report = check({"kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "topic": "events"})
    assert [each.name for each in report.failed] == ["brokers"]
    assert "Connection refused" in line(report, "brokers").text
    assert "localhost is the container itself" in line(report, "brokers").to_do
    assert statuses(report)["topic"] is Status.NOT_CHECKED
    assert report.seconds < 5


def test_one_of_two_bootstrap_servers_is_a_hint(broker: EmbeddedBroker) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    report = check(settings(broker) | {"kafka.bootstrap.servers": f"{dead},{broker.bootstrap_servers}"})
    assert report.ok, report
    assert dead in line(report, "brokers").to_do


def test_an_advertised_address_that_cannot_be_reached_is_named() -> None:
    dead = free_ports(1)[0]
    with EmbeddedBroker(2, advertised={2: ("127.0.0.1", dead)}) as broker:
        broker.create_topic("events")
        report = check({"kafka.bootstrap.servers": broker.address(1), "topic": "events"})
    (cross,) = report.failed
    assert cross.text.startswith(f"broker 2 advertises 127.0.0.1:{dead}, which cannot be reached from here")
    assert "advertised.listeners on broker 2" in cross.to_do
    assert "1 of 2 brokers answered" in lines(report, "brokers")[1].text


@pytest.mark.parametrize(
    ("like", "said"), [("2.8", "2.8"), ("3.4", "3.1 to 3.4"), ("3.9", "3.9"), ("4.0", "4.0"), ("4.1", "4.1 or newer")]
)
def test_the_release_is_told(like: str, said: str) -> None:
    with EmbeddedBroker(like=like) as broker:
        broker.create_topic("events")
        report = check(settings(broker))
    assert report.ok, report
    assert line(report, "brokers").text.endswith(f"protocol of Kafka {said}")


# Time


def test_a_broker_that_never_answers_costs_no_more_than_the_time() -> None:
    with black_hole() as (host, port):
        report = check({"kafka.bootstrap.servers": f"{host}:{port}", "topic": "events"}, timeout=1)
    assert [each.name for each in report.failed] == ["brokers"]
    assert report.seconds < 3


def test_a_name_server_that_never_answers_costs_no_more_than_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hanging(*_: object, **__: object) -> Any:
        answer.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    try:
        report = check({"kafka.bootstrap.servers": "kafka.example:9092", "topic": "events"}, timeout=0.5)
    finally:
        answer.set()
        for thread in threading.enumerate():
            if thread.name == "kafka-sink-check":
                thread.join(10)
    assert report.seconds < 5
    assert [(each.name, each.text) for each in report.failed] == [("brokers", "no answer within 0.5 s")]
    assert statuses(report)["topic"] is Status.NOT_CHECKED


def test_requests_that_are_never_answered_leave_the_rest_unchecked() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        with broker.faults.hold(ApiKey.DESCRIBE_CONFIGS):
            report = check(settings(broker), timeout=1)
    assert report.seconds < 3
    assert not report.ok or line(report, "topic configs").status is Status.NOT_CHECKED


@pytest.mark.parametrize("brokers", [1, 2])
def test_an_advertised_address_that_never_answers_leaves_time_for_the_rest(brokers: int) -> None:
    with black_hole() as (host, port), EmbeddedBroker(brokers, advertised={brokers: (host, port)}) as broker:
        broker.create_topic("events")
        report = check({"kafka.bootstrap.servers": broker.address(1), "topic": "events"}, timeout=2)
    (cross,) = report.failed
    assert cross.text.startswith(f"broker {brokers} advertises {host}:{port}, which cannot be reached from here: timed out")
    assert statuses(report)["topic"] is (Status.OK if brokers == 2 else Status.NOT_CHECKED)
    assert report.seconds < 5


def test_each_of_many_advertised_addresses_that_never_answer_is_named() -> None:
    with black_hole() as address, EmbeddedBroker(5, advertised=dict.fromkeys(range(1, 6), address)) as broker:
        report = check({"kafka.bootstrap.servers": broker.address(1), "topic": "events"}, timeout=1)
    assert [each.text.partition(" advertises ")[0] for each in report.failed] == [f"broker {number}" for number in range(1, 6)]


def test_a_coordinator_that_still_loads_is_asked_again(broker: EmbeddedBroker) -> None:
    broker.faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert check(settings(broker)).ok


# TLS and login


def test_tls_tells_protocol_names_and_expiry() -> None:
    with EmbeddedBroker(tls=True) as broker:
        broker.create_topic("events")
        report = check(settings(broker))
    assert report.ok, report
    assert line(report, "TLS").text.startswith("TLSv1.3; the certificate is that of 127.0.0.1:")
    assert "localhost" in line(report, "TLS").text
    assert "valid until 20" in line(report, "TLS").text


@pytest.mark.parametrize(("days", "hint"), [(13, "renew the certificate of 127.0.0.1:"), (20, "")])
def test_a_certificate_that_ends_soon_is_a_hint(days: int, hint: str) -> None:
    report = checked_with_certificate(timedelta(days=days, hours=1))
    assert report.ok, report
    assert f"({days} days)" in line(report, "TLS").text
    assert line(report, "TLS").to_do.startswith(hint)
    assert bool(line(report, "TLS").to_do) == bool(hint)


def test_a_certificate_that_has_expired_is_a_cross() -> None:
    report = checked_with_certificate(timedelta(days=-1))
    assert [each.name for each in report.failed] == ["TLS"]
    assert "a certificate of its chain has expired" in line(report, "TLS").text


def checked_with_certificate(valid: timedelta) -> CheckReport:
    authority = CertificateAuthority()
    made = authority.server(["127.0.0.1"], valid=valid)
    config = BrokerConfig(ssl_keystore_certificate_chain=made.certificate, ssl_keystore_key=made.key)
    with EmbeddedBroker(config=config) as broker:
        broker.create_topic("events")
        trusted = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "PEM"}
        trusted["kafka.ssl.truststore.certificates"] = authority.certificate
        return check({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events", **trusted})


def test_an_authority_that_is_not_trusted_is_a_cross_of_tls() -> None:
    with EmbeddedBroker(tls=True) as broker:
        report = check({"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.security.protocol": "SSL", "topic": "events"})
    assert [each.name for each in report.failed] == ["TLS"]
    assert "not trusted" in line(report, "TLS").text
    assert statuses(report)["login"] is Status.NOT_CHECKED


def test_no_tls_where_brokers_want_it_is_a_cross_of_tls() -> None:
    with EmbeddedBroker(tls=True) as broker:
        report = check({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"})
    assert [each.name for each in report.failed] == ["TLS"]
    assert "Set security.protocol=SSL" in line(report, "TLS").text


def test_the_login_is_told_and_a_wrong_password_is_its_cross() -> None:
    with EmbeddedBroker(config=BrokerConfig(sasl_users=USERS)) as broker:
        broker.create_topic("events")
        good = settings(broker)
        report = check(good)
        bad = check(good | {"kafka.sasl.jaas.config": good["kafka.sasl.jaas.config"].replace('"word"', '"wrong"')})
    assert line(report, "login").text.startswith("User:sink, by ")
    assert [each.name for each in bad.failed] == ["login"]
    assert "the SASL login" in line(bad, "login").text


def test_no_secret_is_in_a_report(broker: EmbeddedBroker) -> None:
    for options in (
        {f"kafka.{name}": value for name, value in PLANTED.items()},
        {f"kafka.{name}x": v for name, v in PLANTED.items()},
    ):
        report = check({**options, "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"}, timeout=2)
        assert MARK not in repr(report) + report._repr_html_() + str(report.as_json())


# Rights


@pytest.fixture
def strict() -> Iterator[EmbeddedBroker]:
    """Its only user has no rights."""
    config = BrokerConfig(sasl_users=USERS, acls=[], transaction_state_log_num_partitions=2, auto_create_topics_enable=False)
    with EmbeddedBroker(config=config) as made:
        made.create_topic("events")
        yield made


def granted(broker: EmbeddedBroker, options: Mapping[str, str]) -> CheckReport:
    """Does what the crosses say until there are none, as an administrator would."""
    for _ in range(10):
        report = check(options)
        if report.ok:
            return report
        for cross in report.failed:
            command = cross.to_do.partition("`")[2].partition("`")[0]
            assert command.startswith("kafka-acls "), cross
            broker.cluster.add_acls(parse_acls(command.partition(" --add ")[2]))
    raise AssertionError(report)


def test_with_the_acls_of_the_crosses_writing_is_allowed(strict: EmbeddedBroker) -> None:
    report = granted(strict, settings(strict))
    assert "Write" in lines(report, "rights")[0].text
    assert line(report, "topic configs").status is Status.NOT_CHECKED
    assert "DescribeConfigs" in line(report, "topic configs").text


def test_with_the_acls_of_the_crosses_exactly_once_is_allowed(strict: EmbeddedBroker) -> None:
    report = granted(strict, settings(strict, **EXACTLY_ONCE))
    assert "the first commit creates it" in line(report, "commit log").text
    assert any("spark-kafka-sink.*" in each.text for each in lines(report, "rights"))


def test_describe_alone_is_not_enough(strict: EmbeddedBroker) -> None:
    strict.cluster.add_acls(parse_acls("--allow-principal User:sink --operation Describe --topic events"))
    cross = next(each for each in check(settings(strict)).failed if "events" in each.text)
    assert cross.text == "User:sink is not authorized for Write on topic 'events'"
    assert "--operation Write --topic events" in cross.to_do


# The topic


def test_a_missing_topic_is_a_cross_with_the_nearest_name(broker: EmbeddedBroker) -> None:
    cross = line(check(settings(broker, topic="event")), "topic")
    assert cross.status is Status.FAILED
    assert cross.text == "topic 'event' does not exist; did you mean events?"
    assert "spark-kafka-sink topics create event " in cross.to_do


def test_a_missing_topic_that_brokers_create_is_a_tick() -> None:
    with EmbeddedBroker() as made:
        report = check(settings(made))
        assert "events" not in made.cluster.image.topics
    assert report.ok, report
    assert "the brokers create it with the first record" in line(report, "topic").text


def test_a_missing_topic_that_the_driver_creates_is_a_tick_and_is_not_created(broker: EmbeddedBroker) -> None:
    report = check(settings(broker, topic="new", **{"topic.create.partitions": "3"}))
    assert report.ok, report
    assert "the driver creates it" in line(report, "topic").text
    assert "new" not in broker.cluster.image.topics


def test_a_missing_topic_that_cannot_be_created_is_a_cross_of_its_option(broker: EmbeddedBroker) -> None:
    report = check(settings(broker, topic="new", **{"topic.create.replication.factor": "3"}))
    assert "option topic.create.replication.factor" in line(report, "topic").text
    assert not report.ok


def test_partitions_without_a_leader_are_named() -> None:
    with EmbeddedBroker(2) as made:
        made.create_topic("events", 4)
        made.kill(2)
        gone = [number for number in range(4) if made.leader("events", number) < 0]
        report = check(settings(made) | {"kafka.bootstrap.servers": made.address(1)})
    assert f"{', '.join(map(str, gone))} of 4 partitions have no leader" in line(report, "topic").text
    assert not report.ok


def test_fewer_in_sync_replicas_than_needed_is_a_cross() -> None:
    with EmbeddedBroker(2) as made:
        made.create_topic("events", 1, 2, {"min.insync.replicas": "2"})
        made.kill(2)
        report = check(settings(made) | {"kafka.bootstrap.servers": made.address(1)})
    assert "fewer in-sync replicas than min.insync.replicas=2" in line(report, "topic").text
    assert not report.ok


def test_batches_larger_than_the_topic_takes_are_a_cross(broker: EmbeddedBroker) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "100000"})
    report = check(settings(broker, topic="small"))
    assert line(report, "sizes").status is Status.FAILED
    assert "set kafka.batch.size to at most 100000" in line(report, "sizes").to_do
    fitting = check(settings(broker, topic="small", **{"kafka.batch.size": "100000"}))
    assert fitting.ok
    assert "reject rows that are larger than 100,000 bytes" in line(fitting, "sizes").to_do


def test_times_set_by_brokers_are_told(broker: EmbeddedBroker) -> None:
    broker.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    assert "LogAppendTime" in line(check(settings(broker, topic="stamped")), "timestamps").text


def test_a_compacted_topic_needs_keys(broker: EmbeddedBroker) -> None:
    broker.create_topic("compacted", configs={"cleanup.policy": "compact"})
    assert "each row needs a key" in line(check(settings(broker, topic="compacted")), "compaction").to_do


# Exactly-once


def test_brokers_that_are_too_old_for_exactly_once_are_a_cross() -> None:
    with EmbeddedBroker(like="3.7") as made:
        made.create_topic("events")
        wanted = check(settings(made, **EXACTLY_ONCE))
        other = check(settings(made))
    assert "exactly-once needs Kafka 3.8 or newer" in line(wanted, "exactly-once").text
    assert not wanted.ok
    assert other.ok, other
    assert "do not support it" in line(other, "exactly-once").text


def test_a_time_out_over_the_brokers_limit_is_a_cross(broker: EmbeddedBroker) -> None:
    report = check(settings(broker, **EXACTLY_ONCE, **{"kafka.transaction.timeout.ms": "3600000"}))
    cross = lines(report, "exactly-once")[0]
    assert cross.status is Status.FAILED
    assert "set kafka.transaction.timeout.ms to at most 900000" in cross.to_do


def test_a_commit_log_that_is_not_compacted_is_a_cross(broker: EmbeddedBroker) -> None:
    broker.create_topic("log", 50)
    report = check(settings(broker, **EXACTLY_ONCE, **{"commit.log.topic": "log"}))
    assert "cleanup.policy=delete" in line(report, "commit log").text


def test_a_commit_log_with_fewer_partitions_is_a_cross(broker: EmbeddedBroker) -> None:
    broker.create_topic("short-log", 1, configs={"cleanup.policy": "compact"})
    report = check(settings(broker, **EXACTLY_ONCE, **{"commit.log.topic": "short-log", "commit.log.partitions": "2"}))
    assert "set commit.log.partitions to 1" in line(report, "commit log").to_do


# On real Kafka


def test_missing_rights_are_crosses_on_real_kafka(kafka_with_acls: KafkaWithAcls) -> None:
    """Rights are known without a write: those on topics from metadata, those on ids from a request that brokers refuse anyway."""
    name = f"check-{uuid.uuid4()}"
    kafka_with_acls.create_topic(name, 1)
    options = {"kafka.bootstrap.servers": kafka_with_acls.bootstrap_servers, "topic": name, **EXACTLY_ONCE}
    kafka_with_acls.deny(ResourceType.TOPIC, name, AclOperation.WRITE)
    kafka_with_acls.deny(ResourceType.TRANSACTIONAL_ID, "spark-kafka-sink.", AclOperation.WRITE, prefixed=True)
    report = check(options, timeout=30)
    topic, ids = report.failed
    assert topic.text == f"User:ANONYMOUS is not authorized for Write on topic {name!r}"
    assert f"--operation Write --topic {name}" in topic.to_do
    assert "is not authorized for Write on transactional ids spark-kafka-sink.*" in ids.text
    assert "--transactional-id spark-kafka-sink. --resource-pattern-type prefixed" in ids.to_do
    assert "__spark_kafka_sink_commits" not in kafka_with_acls.metadata().topics
