"""confluent-kafka and Java's clients at encrypted listeners: every mechanism, certificates of clients, and rights by ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from spark_kafka_sink import Producer as OurProducer
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.certificates import CertificateAuthority
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.protocol.api import ApiKey
from tests.broker.compat.confluent import wait_for_error
from tests.broker.compat.java_tools import tool

pytestmark = pytest.mark.slow

TIMEOUT_S = 20.0
USERS = {"ana": 'se"cr\\et', "bob": "b"}
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
AUTHORITY = CertificateAuthority()


def broker_of(**config: Any) -> EmbeddedBroker:
    return EmbeddedBroker(tls=AUTHORITY, config=BrokerConfig(connection_failed_authentication_delay_ms=10, **config))


@pytest.fixture(scope="module")
def sasl_ssl() -> Iterator[EmbeddedBroker]:
    with broker_of(sasl_users=USERS) as running:
        running.create_topic("t")
        yield running


def confluent(broker: EmbeddedBroker, user: str | None = None, **settings: Any) -> dict[str, Any]:
    return {**broker.client_settings_for(user, librdkafka=True), "log_level": 0, **settings}


def written(settings: dict[str, Any], topic: str = "t") -> list[str | None]:
    """What became of one record, as the name of the error's code."""
    producer = Producer({"message.timeout.ms": 15_000, **settings})
    outcome: list[str | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(None if error is None else error.name()))
    producer.flush(TIMEOUT_S)
    return outcome


class TestConfluent:
    @pytest.mark.parametrize("mechanism", PASSWORDS)
    def test_logs_in(self, sasl_ssl: EmbeddedBroker, mechanism: str) -> None:
        assert written(confluent(sasl_ssl, **{"sasl.mechanism": mechanism})) == [None]

    def test_is_refused(self, sasl_ssl: EmbeddedBroker) -> None:
        errors: list[KafkaError] = []
        admin = AdminClient(confluent(sasl_ssl, error_cb=errors.append) | {"sasl.password": "wrong"})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)

        wait_for_error(admin, errors, KafkaError._AUTHENTICATION)

    def test_a_transaction_and_a_consumer_over_tls(self) -> None:
        with broker_of() as broker:
            broker.create_topic("t")
            producer = Producer(confluent(broker, **{"transactional.id": "x"}))
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            for index in range(1000):
                producer.produce("t", b"%d" % index * 100)
            producer.commit_transaction(TIMEOUT_S)
            consumer = Consumer(confluent(broker, **{"group.id": "g", "auto.offset.reset": "earliest"}))
            consumer.subscribe(["t"])
            got = consumer.consume(1000, TIMEOUT_S)
            consumer.close()
            assert [message.value() for message in got] == [b"%d" % index * 100 for index in range(1000)]

    def test_is_who_its_certificate_says(self) -> None:
        acl = "--allow-principal User:CN=ana --operation Write --topic t"
        with broker_of(ssl_client_auth="required", acls=[acl], num_network_threads=1) as broker:
            broker.create_topic("t")
            quickly = {"message.timeout.ms": 3000}
            assert written(confluent(broker, "ana")) == [None]
            assert written(confluent(broker, "bob", **quickly)) == ["TOPIC_AUTHORIZATION_FAILED"]

    def test_a_login_is_renewed_before_it_ends(self) -> None:
        """librdkafka logs in again on the same connection (KIP-368); without that the broker would close it."""
        with broker_of(sasl_users=USERS, connections_max_reauth_ms=2000, num_network_threads=1) as broker:
            broker.create_topic("t")
            logins = broker.faults.watch(ApiKey.SASL_AUTHENTICATE, times=None)
            producer = Producer(confluent(broker))
            outcomes = set[str]()
            # One for bootstrap.servers, one for the broker by its id, and again.
            while logins.hits < 4:
                producer.produce("t", b"value", on_delivery=lambda error, _: outcomes.add(str(error)))
                producer.poll(0.1)
            assert producer.flush(TIMEOUT_S) == 0
            assert outcomes == {"None"}


class TestOurs:
    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"ssl_client_auth": "required"},
            {"sasl_users": USERS},
            {"sasl_users": USERS, "sasl_mechanisms": ("SCRAM-SHA-256",)},
            {"sasl_users": USERS, "sasl_mechanisms": ("SCRAM-SHA-512",)},
        ],
        ids=lambda config: "-".join(map(str, config.values())) or "tls",
    )
    def test_the_producer_takes_the_brokers_settings_as_they_are(self, config: dict[str, Any]) -> None:
        with broker_of(num_network_threads=1, **config) as broker:
            broker.create_topic("t")
            with OurProducer(broker.client_settings) as producer:
                assert producer.send("t", value=b"value").result(TIMEOUT_S).offset == 0

    def test_a_user_that_is_not_there(self) -> None:
        with broker_of(sasl_users=USERS) as broker, pytest.raises(OptionError, match="no user 'eve'; the users are ana, bob"):
            broker.client_settings_for("eve")


class TestRights:
    @pytest.fixture
    def admin(self) -> Iterator[AdminClient]:
        with broker_of(sasl_users={**USERS, "root": "r"}, super_users=("User:root",)) as broker:
            broker.create_topic("t")
            self.broker = broker
            yield AdminClient(confluent(broker, "root"))

    def test_acls_are_made_found_and_deleted(self, admin: AdminClient) -> None:
        quickly = {"message.timeout.ms": 3000}
        assert written(confluent(self.broker, "ana", **quickly)) == ["TOPIC_AUTHORIZATION_FAILED"]
        acl = self.acl("t", AclOperation.WRITE)
        (done,) = admin.create_acls([acl]).values()
        done.result(TIMEOUT_S)
        assert admin.describe_acls(self.every).result(TIMEOUT_S) == [acl]
        assert written(confluent(self.broker, "ana")) == [None]
        assert written(confluent(self.broker, "bob", **quickly)) == ["TOPIC_AUTHORIZATION_FAILED"]
        (deleted,) = admin.delete_acls([self.every]).values()
        assert deleted.result(TIMEOUT_S) == [acl]
        assert written(confluent(self.broker, "ana", **quickly)) == ["TOPIC_AUTHORIZATION_FAILED"]

    # Its types say that a filter has a name, a principal and a host; None is any.
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY, AclPermissionType.ANY
    )

    def acl(self, topic: str, operation: AclOperation) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ana", "*", operation, AclPermissionType.ALLOW
        )


# Java


def properties(folder: Path, settings: dict[str, str]) -> str:
    """A file of Java's properties."""

    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n")

    file = folder / "client.properties"
    file.write_text("".join(f"{name}={escaped(value)}\n" for name, value in settings.items()))
    return str(file)


class TestJava:
    pytestmark = pytest.mark.java

    def served(self, broker: EmbeddedBroker, folder: Path, settings: dict[str, str]) -> None:
        broker.create_topic("t")
        config, servers = properties(folder, settings), broker.bootstrap_servers
        tool("ConsoleProducer", servers, "--topic", "t", "--producer.config", config, given="from java\n")
        flags = ("--topic", "t", "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000")
        assert "from java" in tool("consumer.ConsoleConsumer", servers, "--consumer.config", config, *flags)

    def test_passwords(self, tmp_path: Path) -> None:
        with broker_of(sasl_users=USERS, sasl_mechanisms=("SCRAM-SHA-256",)) as broker:
            self.served(broker, tmp_path, broker.client_settings)

    def test_kafka_acls(self, tmp_path: Path) -> None:
        with broker_of(sasl_users={**USERS, "root": "r"}, super_users=("User:root",)) as broker:
            config = properties(tmp_path, broker.client_settings_for("root"))

            def kafka_acls(*arguments: str) -> str:
                return "\n".join(tool("AclCommand", broker.bootstrap_servers, "--command-config", config, *arguments))

            kafka_acls(
                "--add", "--allow-principal", "User:ana", "--producer", "--topic", "ev", "--resource-pattern-type", "prefixed"
            )
            listed = kafka_acls("--list", "--topic", "events", "--resource-pattern-type", "match")
            assert "resourceType=TOPIC, name=ev, patternType=PREFIXED" in listed
            assert "(principal=User:ana, host=*, operation=WRITE, permissionType=ALLOW)" in listed
            kafka_acls(
                "--remove",
                "--force",
                "--allow-principal",
                "User:ana",
                "--producer",
                "--topic",
                "ev",
                "--resource-pattern-type",
                "prefixed",
            )
            assert [str(acl) for acl in broker.cluster.image.acls] == []
