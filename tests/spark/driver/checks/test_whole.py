"""`check(options)` as a whole: options, time, and what it reports of real Kafka. None of these tests needs Spark."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.options.sink_options import warn_once
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.spark.driver.check import check
from spark_kafka_sink.spark.driver.checks import context
from spark_kafka_sink.spark.driver.checks.report import Status
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.network.black_hole import black_hole
from tests.planted_secrets import MARK, PLANTED
from tests.spark.driver.checks.reading import EXACTLY_ONCE, line, lines, settings, statuses
from tests.waiting import HOUR_MS, HOUR_S


def test_a_topic_that_can_be_written_to(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    report = check({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}, timeout=30)
    assert report.ok, str(report)
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
    assert report.ok, str(report)
    assert statuses(report) == {
        **dict.fromkeys(("options", "brokers", "TLS", "login", "topic", "sizes", "rights"), Status.OK),
        **dict.fromkeys(("exactly-once", "commit log"), Status.OK),
        **dict.fromkeys(("columns", "Python"), Status.NOT_CHECKED),
    } | ({"timestamps": Status.OK} if lines(report, "timestamps") else {})


# Options


def test_a_wrong_option_is_the_only_line() -> None:
    report = check({"kafka.bootstrap.server": "127.0.0.1:1"})
    assert [each.name for each in report.failed] == ["options"]
    assert report.wrong_options
    assert "did you mean kafka.bootstrap.servers?" in line(report, "options").text
    assert len(report.lines) == 1


@pytest.mark.parametrize(
    ("name", "file"),
    [("ssl.ca.location", "ca.pem"), ("ssl.truststore.location", "broken.pem"), ("ssl.keystore.location", "missing.p12")],
)
def test_a_file_that_cannot_be_used_is_a_wrong_option(name: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "broken.pem").write_text("-----BEGIN NONSENSE", encoding="ascii")
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.security.protocol": "SSL", f"kafka.{name}": str(tmp_path / file)}
    report = check(options)
    (cross,) = report.lines
    assert cross.text.startswith(f"[OPTION] option kafka.{name}: file '{tmp_path / file}' ")
    assert report.wrong_options


def test_a_password_that_is_sent_unencrypted_is_a_hint_and_not_a_warning_too(caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    with EmbeddedBroker(config=BrokerConfig(sasl_users={"sink": "word"})) as broker:
        broker.create_topic("events")
        report = check(settings(broker))
    assert (
        line(report, "login").to_do == "security.protocol=SASL_PLAINTEXT with PLAIN sends the password unencrypted; use SASL_SSL"
    )
    assert [each for each in caplog.messages if "unencrypted" in each] == []


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_must_be_positive(timeout: float) -> None:
    with pytest.raises(UsageError, match="timeout"):
        check({}, timeout=timeout)


def test_without_the_option_topic_no_topic_is_checked(broker: EmbeddedBroker) -> None:
    options = settings(broker)
    del options["topic"]
    assert line(check(options), "topic").status is Status.NOT_CHECKED


# Time


def test_a_broker_that_never_answers_costs_no_more_than_the_time() -> None:
    limits = dict.fromkeys(("kafka.socket.connection.setup.timeout.ms", "kafka.request.timeout.ms"), str(HOUR_MS))
    with black_hole() as (host, port):
        report = check({"kafka.bootstrap.servers": f"{host}:{port}", "topic": "events", **limits}, timeout=1)
    assert [each.name for each in report.failed] == ["brokers"]


@contextmanager
def name_server(monkeypatch: pytest.MonkeyPatch, silent: Collection[str], after: int = 0) -> Iterator[Counter[str]]:
    """Never answers for some names `after` so many times, and counts how often each name is looked up."""
    looked_up: Counter[str] = Counter()
    before = set(threading.enumerate())
    answer, found = threading.Event(), socket.getaddrinfo

    def get(host: str, *rest: Any, **named: Any) -> Any:
        looked_up[host] += 1
        if host not in silent or looked_up[host] <= after:
            return found(host, *rest, **named)
        answer.wait(HOUR_S)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", get)
    try:
        yield looked_up
    finally:
        answer.set()
        for thread in set(threading.enumerate()) - before:
            if thread.name.startswith("kafka-sink-"):
                thread.join(60)


def test_a_name_server_that_never_answers_costs_no_more_than_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with name_server(monkeypatch, ["kafka.example"]):
        report = check({"kafka.bootstrap.servers": "kafka.example:9092", "topic": "events"}, timeout=5)
    (cross,) = report.failed
    text = "bootstrap server kafka.example:9092: could not connect to kafka.example:9092: timed out looking up the host name"
    assert (cross.name, cross.text) == ("brokers", text)
    assert statuses(report)["topic"] is Status.NOT_CHECKED


def test_a_check_that_hangs_is_a_cross_and_the_others_had_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_TRIES", 1)  # the first connection is made, and may take the whole of a wait
    with EmbeddedBroker() as broker, name_server(monkeypatch, ["localhost"], after=1):
        port = broker.address(1).rpartition(":")[2]
        report = check({"kafka.bootstrap.servers": f"localhost:{port}", "topic": "events"}, timeout=2)
    assert [(each.name, each.text) for each in report.failed] == [("brokers", "no answer within 2 s")]
    assert statuses(report)["topic"] is Status.NOT_CHECKED
    assert line(report, "topic").timed_out


def test_names_that_are_never_found_leave_time_for_a_healthy_server(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"lost-{number}.example" for number in range(9)]
    with EmbeddedBroker() as broker, name_server(monkeypatch, names) as looked_up:
        broker.create_topic("events")
        servers = ",".join([*(f"{name}:9092" for name in names), broker.bootstrap_servers])
        report = check({"kafka.bootstrap.servers": servers, "topic": "events"}, timeout=10)
    assert report.ok, str(report)
    assert all(name in line(report, "brokers").to_do for name in names)
    assert {looked_up[name] for name in names} == {1}


def test_requests_that_are_never_answered_leave_the_rest_unchecked() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("events")
        with broker.faults.hold(ApiKey.DESCRIBE_CONFIGS):
            report = check(settings(broker), timeout=5)
    assert not report.failed, str(report)
    assert line(report, "topic configs").timed_out
    assert not report.complete


def test_a_bootstrap_server_that_never_answers_leaves_time_for_the_next() -> None:
    with black_hole() as (host, port), EmbeddedBroker() as broker:
        broker.create_topic("events")
        options = {"kafka.bootstrap.servers": f"{host}:{port},{broker.bootstrap_servers}", "topic": "events"}
        report = check(options, timeout=6)
    assert report.ok, str(report)
    assert f"{host}:{port}" in line(report, "brokers").to_do


@pytest.mark.parametrize("brokers", [1, 2])
def test_an_advertised_address_that_never_answers_leaves_time_for_the_rest(brokers: int) -> None:
    with black_hole() as (host, port), EmbeddedBroker(brokers, advertised={brokers: (host, port)}) as broker:
        broker.create_topic("events")
        report = check({"kafka.bootstrap.servers": broker.address(1), "topic": "events"}, timeout=5)
    (cross,) = report.failed
    assert cross.text.startswith(f"broker {brokers} advertises {host}:{port}, which cannot be reached from here: timed out")
    assert statuses(report)["topic"] is (Status.OK if brokers == 2 else Status.NOT_CHECKED)


def test_each_of_many_advertised_addresses_that_never_answer_is_named() -> None:
    with black_hole() as address, EmbeddedBroker(5, advertised=dict.fromkeys(range(1, 6), address)) as broker:
        report = check({"kafka.bootstrap.servers": broker.address(1), "topic": "events"}, timeout=3)
    assert [each.text.partition(" advertises ")[0] for each in report.failed] == [f"broker {number}" for number in range(1, 6)]


def test_a_coordinator_that_still_loads_is_asked_again(broker: EmbeddedBroker) -> None:
    broker.faults.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert check(settings(broker)).ok


def test_no_secret_is_in_a_report(broker: EmbeddedBroker) -> None:
    for options in (
        {f"kafka.{name}": value for name, value in PLANTED.items()},
        {f"kafka.{name}x": v for name, v in PLANTED.items()},
    ):
        report = check({**options, "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events"}, timeout=2)
        assert MARK not in repr(report) + report._repr_html_() + str(report.as_json())
