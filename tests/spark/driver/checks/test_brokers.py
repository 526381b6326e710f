"""Checks of brokers, their advertised addresses, TLS and the login."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spark_kafka_sink.broker import BrokerConfig, CertificateAuthority, EmbeddedBroker
from spark_kafka_sink.spark.driver.check import CheckReport, check
from spark_kafka_sink.spark.driver.checks.report import Status
from tests.kafka.ports import free_ports
from tests.spark.driver.checks.reading import line, lines, settings, statuses


def test_a_port_where_nobody_listens() -> None:
    report = check({"kafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "topic": "events"})
    assert [each.name for each in report.failed] == ["brokers"]
    assert "Connection refused" in line(report, "brokers").text
    assert "localhost is the container itself" in line(report, "brokers").to_do
    assert statuses(report)["topic"] is Status.NOT_CHECKED


def test_one_of_two_bootstrap_servers_is_a_hint(broker: EmbeddedBroker) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    report = check(settings(broker) | {"kafka.bootstrap.servers": f"{dead},{broker.bootstrap_servers}"})
    assert report.ok, str(report)
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


@pytest.mark.parametrize(("like", "said"), [("2.1", "2.1"), ("3.9", "3.9"), ("4.1", "4.1 or newer")])
def test_the_release_is_told(like: str, said: str) -> None:
    with EmbeddedBroker(like=like) as broker:
        broker.create_topic("events")
        report = check(settings(broker))
    assert report.ok, str(report)
    assert line(report, "brokers").text.endswith(f"protocol of Kafka {said}")


# TLS and login


def test_tls_tells_protocol_names_and_expiry() -> None:
    with EmbeddedBroker(tls=True) as broker:
        broker.create_topic("events")
        report = check(settings(broker))
    assert report.ok, str(report)
    assert line(report, "TLS").text.startswith("TLSv1.3; the certificate is that of 127.0.0.1:")
    assert "localhost" in line(report, "TLS").text
    assert "valid until 20" in line(report, "TLS").text


@pytest.mark.parametrize(("days", "hint"), [(13, "renew the certificate of 127.0.0.1:"), (20, "")])
def test_a_certificate_that_ends_soon_is_a_hint(days: int, hint: str) -> None:
    report = checked_with_certificate(timedelta(days=days, hours=1))
    assert report.ok, str(report)
    assert f"({days} days)" in line(report, "TLS").text
    assert line(report, "TLS").to_do.startswith(hint)
    assert bool(line(report, "TLS").to_do) == bool(hint)


def test_a_certificate_that_has_expired_is_a_cross() -> None:
    report = checked_with_certificate(timedelta(days=-1))
    assert [each.name for each in report.failed] == ["TLS"]
    assert "a certificate in its chain has expired" in line(report, "TLS").text


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


def test_tls_where_brokers_have_none_is_a_cross_of_tls() -> None:
    with EmbeddedBroker() as broker:
        report = check(settings(broker) | {"kafka.security.protocol": "SSL"})
    assert [each.name for each in report.failed] == ["TLS"]
    assert f"broker {broker.bootstrap_servers} speaks plain text" in line(report, "TLS").text
    assert "Use the port of a listener with TLS" in line(report, "TLS").text


def test_the_login_is_told_and_a_wrong_password_is_its_cross() -> None:
    with EmbeddedBroker(config=BrokerConfig(sasl_users={"sink": "word"})) as broker:
        broker.create_topic("events")
        good = settings(broker)
        report = check(good)
        bad = check(good | {"kafka.sasl.jaas.config": good["kafka.sasl.jaas.config"].replace('"word"', '"wrong"')})
    assert line(report, "login").text.startswith("User:sink, by ")
    assert [each.name for each in bad.failed] == ["login"]
    assert "the SASL login" in line(bad, "login").text
