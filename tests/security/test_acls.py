"""What a refusal asks for: the operation, the resource, and the line of kafka-acls."""

from __future__ import annotations

import datetime
import pickle
import shlex
import uuid
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from spark_kafka_sink.errors import AuthorizationError, BrokerError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.security.acls import RESOURCE_OF, Rights, rights_of
from tests.every import every

A, E = ApiKey, ErrorCode
ANA = Rights(("a:9092", "b:9092"), "User:ana")
START = "kafka-acls --bootstrap-server a:9092,b:9092 --add --allow-principal User:ana "

ROWS = [
    (A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, "Write on topic x", "--operation Write --topic x"),
    (A.ADD_PARTITIONS_TO_TXN, E.TOPIC_AUTHORIZATION_FAILED, "Write on topic x", "--operation Write --topic x"),
    (A.METADATA, E.TOPIC_AUTHORIZATION_FAILED, "Describe on topic x", "--producer --topic x"),
    (A.TXN_OFFSET_COMMIT, E.TOPIC_AUTHORIZATION_FAILED, "Read on topic x", "--operation Read --topic x"),
    (A.FETCH, E.TOPIC_AUTHORIZATION_FAILED, "Read on topic x", "--operation Read --topic x"),
    (A.LIST_OFFSETS, E.TOPIC_AUTHORIZATION_FAILED, "Describe on topic x", "--operation Describe --topic x"),
    (A.CREATE_TOPICS, E.TOPIC_AUTHORIZATION_FAILED, "Create on topic x", "--operation Create --topic x"),
    (
        *(A.DESCRIBE_CONFIGS, E.TOPIC_AUTHORIZATION_FAILED),
        *("DescribeConfigs on topic x", "--operation DescribeConfigs --topic x"),
    ),
    (A.FIND_COORDINATOR, E.GROUP_AUTHORIZATION_FAILED, "Describe on group x", "--operation Read --group x"),
    (A.ADD_OFFSETS_TO_TXN, E.GROUP_AUTHORIZATION_FAILED, "Read on group x", "--operation Read --group x"),
    (A.TXN_OFFSET_COMMIT, E.GROUP_AUTHORIZATION_FAILED, "Read on group x", "--operation Read --group x"),
    (
        *(A.INIT_PRODUCER_ID, E.CLUSTER_AUTHORIZATION_FAILED),
        *("IdempotentWrite on the cluster", "--operation IdempotentWrite --cluster"),
    ),
    *(
        (api, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, f"{operation} on transactional id x", ids)
        for operation, apis in {
            "Write": (A.INIT_PRODUCER_ID, A.PRODUCE, A.ADD_PARTITIONS_TO_TXN, A.ADD_OFFSETS_TO_TXN, A.END_TXN),
            "Describe": (A.FIND_COORDINATOR, A.DESCRIBE_TRANSACTIONS, A.LIST_TRANSACTIONS),
        }.items()
        for api in apis
        for ids in ["--operation Write --operation Describe --transactional-id x"]
    ),
    (
        *(A.METADATA, E.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        *("Describe on delegation token x", "--operation Describe --delegation-token x"),
    ),
]


@every("api, code, lacks, grants", ROWS)
def test_a_refusal_names_the_operation_the_resource_and_the_line(api: ApiKey, code: int, lacks: str, grants: str) -> None:
    error = ANA.error("it failed", api, code, "x", topic="x")

    assert isinstance(error, AuthorizationError)
    # Brokers that make topics say the same of a topic that does not exist.
    first = "check that the topic exists, then " if (api, code) == (A.METADATA, E.TOPIC_AUTHORIZATION_FAILED) else ""
    text = f"User:ana is not authorized for {lacks}; to grant it, {first}run `{START}{grants}`"
    assert str(error) == f"[AUTHORIZATION] it failed; {text}"
    operation, _, resource = lacks.partition(" on ")
    assert error.facts == {
        "principal": "User:ana",
        "operation": operation,
        "resource": resource,
        "acl": START + grants,
        "topic": "x",
        "error_code": code,
        "error": ErrorCode(code).name,
    }


def test_each_of_kafkas_codes_of_a_missing_right_is_known() -> None:
    assert set(RESOURCE_OF) == {code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED")}


@pytest.mark.parametrize("code", [E.NONE, E.SASL_AUTHENTICATION_FAILED, E.UNKNOWN_TOPIC_OR_PARTITION, 9999])
def test_other_codes_ask_for_no_right(code: int) -> None:
    error = ANA.error("it failed", A.PRODUCE, code, "x")

    assert type(error) is BrokerError
    assert str(error) == "[BROKER] it failed"


def test_the_error_pickles_with_its_facts() -> None:
    error = ANA.error("it failed", A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, "x")
    again = pickle.loads(pickle.dumps(error))

    assert (str(again), again.facts) == (str(error), error.facts)


@every("prefix", ["spark-kafka-sink", "team.orders"])
@every("query_id", [str(uuid.uuid4()), MicroBatch.of_new_job().query_id])
@every("of", ["task", "log"])
def test_ids_of_exactly_once_are_granted_by_their_prefix_because_new_ones_are_drawn(prefix: str, query_id: str, of: str) -> None:
    ids = TransactionalIds(prefix, query_id)
    drawn = ids.commit_log if of == "log" else ids.for_slot("0123456789abcdef", 12)
    denial = ANA.denied(A.INIT_PRODUCER_ID, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, drawn)

    assert denial is not None
    assert denial.resource == f"transactional ids {prefix}.*"
    assert denial.acl.endswith(f"--transactional-id {prefix}. --resource-pattern-type prefixed")


@pytest.mark.parametrize("name", ["orders.log", "app.a.0", "app.0123456789abcdef.1"])
def test_a_transactional_id_of_a_program_is_granted_alone(name: str) -> None:
    denial = ANA.denied(A.INIT_PRODUCER_ID, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, name)

    assert denial is not None
    assert denial.acl.endswith(f"--transactional-id {name}")


def test_a_name_that_a_shell_would_take_apart_is_quoted() -> None:
    rights = Rights(("[::1]:9092",), "User:CN=ana, O=Ö & Söhne")
    denial = rights.denied(A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, "x")

    assert denial is not None
    assert shlex.split(denial.acl) == [
        *("kafka-acls", "--bootstrap-server", "[::1]:9092", "--add", "--allow-principal", "User:CN=ana, O=Ö & Söhne"),
        *("--operation", "Write", "--topic", "x"),
    ]


# Who the client is

PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@every(
    "settings, principal",
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "/not/there.pem"}, ""),
        ({**PLAIN, "sasl.username": "ana", "sasl.password": "p"}, "User:ana"),
        ({**SCRAM, "sasl.jaas.config": f'{JAAS} username="an\\"a" password="p";'}, 'User:an"a'),
        ({**SCRAM, "sasl.jaas.config": "${env:THERE_IS_NO_SUCH_VARIABLE}"}, ""),
        ({**SCRAM, "sasl.jaas.config": f'{JAAS} username="tokenID1" password="p" tokenauth="true";'}, ""),
        ({**PLAIN, "sasl.username": "$ConnectionString", "sasl.password": "p"}, ""),
        ({**PLAIN, "bootstrap.servers": "pkc-1.eu.aws.confluent.cloud:9092", "sasl.username": "KEY", "sasl.password": "p"}, ""),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": "t"}, ""),
    ],
)
def test_the_principal_is_named_where_this_side_knows_it(settings: dict[str, str], principal: str) -> None:
    config = producer_config({"bootstrap.servers": "a:9092", **settings})
    rights = rights_of(config.bootstrap_servers, config.security)
    denial = rights.denied(A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, "x")

    assert denial is not None
    assert rights.principal == principal
    assert str(denial).startswith(f"{principal or 'this client'} is not authorized for Write")
    assert f" --allow-principal {shlex.quote(principal) if principal else 'User:NAME'} " in denial.acl
    assert ("principal" in denial.facts) == bool(principal)


def certificate(subject: x509.Name) -> bytes:
    """A client's key store, as PEM: its key and its certificate, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + datetime.timedelta(days=1))
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return private + builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("as_text", [True, False])
def test_the_principal_of_a_certificate_is_its_subject_as_java_writes_it(tmp_path: Path, as_text: bool) -> None:
    parts = {NameOID.ORGANIZATION_NAME: "Acme, Inc", NameOID.ORGANIZATIONAL_UNIT_NAME: "Sinks", NameOID.COMMON_NAME: "ana"}
    pem = certificate(x509.Name([x509.NameAttribute(kind, text) for kind, text in parts.items()]))
    (tmp_path / "client.pem").write_bytes(pem)
    files = {"ssl.keystore.location": str(tmp_path / "client.pem")}
    texts = {"ssl.keystore.certificate.chain": pem.decode(), "ssl.keystore.key": pem.decode()}
    settings = {"bootstrap.servers": "a:9092", "security.protocol": "SSL", **(texts if as_text else files)}
    config = producer_config(settings)

    # X500Principal.getName() of Java: the most special part first.
    assert rights_of(config.bootstrap_servers, config.security).principal == r"User:CN=ana,OU=Sinks,O=Acme\, Inc"


@pytest.mark.parametrize(
    ("settings", "is_plaintext"), [({}, True), ({"security.protocol": "SSL"}, False), (PLAIN, False)], ids=str
)
def test_on_a_secured_cluster_kafka_acls_needs_settings_of_its_own(settings: dict[str, str], is_plaintext: bool) -> None:
    user = {"sasl.username": "ana", "sasl.password": "p"} if "sasl.mechanism" in settings else {}
    config = producer_config({"bootstrap.servers": "a:9092", **settings, **user})
    denial = rights_of(config.bootstrap_servers, config.security).denied(A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, "x")

    assert denial is not None
    assert ("--command-config admin.properties" in denial.acl) != is_plaintext


def test_no_secret_is_in_an_error() -> None:
    settings = {**SCRAM, "sasl.jaas.config": f'{JAAS} username="ana" password="Geheim-1";'}
    config = producer_config({"bootstrap.servers": "a:9092", **settings})
    rights = rights_of(config.bootstrap_servers, config.security)
    error = rights.error("it failed", A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, "x")

    assert "Geheim" not in f"{error!r} {error.facts} {rights!r}"


@pytest.mark.parametrize(
    ("api", "code", "action"),
    [
        (A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, "kafka-cluster:WriteData"),
        (A.METADATA, E.TOPIC_AUTHORIZATION_FAILED, "kafka-cluster:DescribeTopic"),
        (A.INIT_PRODUCER_ID, E.CLUSTER_AUTHORIZATION_FAILED, "kafka-cluster:WriteDataIdempotently"),
        (A.END_TXN, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "kafka-cluster:AlterTransactionalId"),
    ],
)
def test_with_amazons_iam_the_policy_has_to_allow_it(api: ApiKey, code: int, action: str) -> None:
    config = producer_config({"bootstrap.servers": "a:9098", "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"})
    denial = rights_of(config.bootstrap_servers, config.security).denied(api, code, "x")

    assert denial is not None
    assert denial.to_do.endswith(f"allow {action} in the client's IAM policy")
    assert denial.acl == ""
