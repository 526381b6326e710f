"""What rights our client needs: a user without any asks for one after the other, and works with exactly those of the docs."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_kafka_sink import Producer, RecordColumns
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import AuthorizationError, KafkaSinkError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.committer import Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.producer_options import producer_config
from tests.docs.security_blocks import acl_lines
from tests.exactly_once.queries import PREFIX, Query
from tests.kafka_security.logins import Settings, with_password
from tests.kafka_security.secure_kafka import LIMITED, SecureKafka
from tests.kafka_security.writing import numbers, refusal, write

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

Grant = tuple[str, str, bool, str]
"""Kind of resource, its name, whether it is a prefix, operation."""

_OPTIONS = {"--topic": "TOPIC", "--group": "GROUP", "--transactional-id": "TRANSACTIONAL_ID"}
_KINDS = {
    "TOPIC": ResourceType.TOPIC,
    "GROUP": ResourceType.GROUP,
    "TRANSACTIONAL_ID": ResourceType.TRANSACTIONAL_ID,
    "CLUSTER": ResourceType.BROKER,
}


def limited(kafka: SecureKafka) -> Settings:
    return with_password(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-256", LIMITED)


def grants_of(line: str) -> set[Grant]:
    """Returns what a line of kafka-acls grants; fails if it is not for LIMITED."""
    words = shlex.split(line)
    assert words[0].startswith("kafka-acls")
    assert words[words.index("--allow-principal") + 1] == f"User:{LIMITED}"
    if "--cluster" in words:
        kind, name = "CLUSTER", "kafka-cluster"
    else:
        option = next(word for word in words if word in _OPTIONS)
        kind, name = _OPTIONS[option], words[words.index(option) + 1]
    prefixed = "--resource-pattern-type" in words and words[words.index("--resource-pattern-type") + 1] == "prefixed"
    operations = [words[place + 1] for place, word in enumerate(words) if word == "--operation"]
    if "--producer" in words:  # AclCommand.getProducerResourceFilterToAcls
        operations += ["Write", "Describe", "Create"]
    return {(kind, name, prefixed, each) for each in operations}


def allow(kafka: SecureKafka, grants: set[Grant]) -> None:
    for kind, name, prefixed, operation in grants:
        allowed = AclOperation[_constant(operation)]
        kafka.grant(_KINDS[kind], name, allowed, prefixed=prefixed)


def _constant(operation: str) -> str:
    return "".join(f"_{c}" if c.isupper() and at else c for at, c in enumerate(operation)).upper()


def asked_for(kafka: SecureKafka, work: Callable[[], None]) -> set[Grant]:
    """Does the work again and again, each time with the rights that its error names, until it works; returns all of them."""
    granted: set[Grant] = set()
    while True:
        try:
            work()
            return granted
        except KafkaSinkError as error:
            denied = denial(error)
        new = grants_of(denied.facts["acl"])
        assert not new <= granted, f"asks again for what it has: {denied}"
        granted |= new
        allow(kafka, new)


def denial(error: BaseException) -> AuthorizationError:
    """Returns the AuthorizationError that an error is or comes from."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, AuthorizationError):
        found = found.__cause__ or found.__context__
    assert isinstance(found, AuthorizationError), repr(error)
    return found


def test_writing_asks_for_the_rights_of_a_producer_and_no_other(granted: SecureKafka, topic: str) -> None:
    asked = asked_for(granted, lambda: write(limited(granted), topic))
    assert {grant[:3] for grant in asked} == {("TOPIC", topic, False)}
    assert numbers(granted, topic) == [0, 1, 2]


def test_at_least_once_works_with_the_right_of_its_docs(granted: SecureKafka, topic: str) -> None:
    rights = of_page("At-least-once", topic, "")
    assert rights == {("TOPIC", topic, False, "Write")}
    allow(granted, rights)
    write(limited(granted), topic)
    assert numbers(granted, topic) == [0, 1, 2]


def test_a_denied_topic_names_the_user_the_operation_and_the_acl(granted: SecureKafka, topic: str) -> None:
    error = denial(refusal(limited(granted), topic))
    assert error.facts["error"] == "TOPIC_AUTHORIZATION_FAILED"
    for text in (f"User:{LIMITED}", topic, "kafka-acls", "--add"):
        assert text in error.message


def of_page(heading: str, topic: str, log_topic: str) -> set[Grant]:
    """The rights under a heading of docs/security.md, with a test's names in the place of the page's."""
    names = {
        "events": topic,
        "__spark_kafka_sink_commits": log_topic,
        "spark-kafka-sink.": f"{PREFIX}.",
        "User:sink": f"User:{LIMITED}",
    }
    lines = [[names.get(word, word) for word in words] for words in acl_lines(heading)]
    return {grant for words in lines for grant in grants_of(shlex.join(words))}


def exactly_once(topic: str, log_topic: str) -> set[Grant]:
    return of_page("At-least-once", topic, log_topic) | of_page("Exactly-once", topic, log_topic)


def commit_a_batch(kafka: SecureKafka, topic: str, log_topic: str, query_id: str, number: int = 0) -> None:
    """Writes and commits a batch exactly once, as a task and a driver do."""
    ids = TransactionalIds(PREFIX, query_id)
    with ClusterClient(producer_config(limited(kafka))) as client:
        query = Query(kafka, client, topic, log_topic, query_id)
        Committer(query.log(), TransactionClient(client), PREFIX, 30).check(MicroBatch(query_id, number), 20)
        identity = ids.for_slot(f"{number:016x}", 0)
        with Producer(limited(kafka), transactional=True) as producer, producer.transaction(identity) as scope:
            scope.append(topic, RecordColumns(1, value=pa.array([str(number)])))
            handle = scope.prepare()
        assert handle is not None
        own = PreparedTransaction(handle, 0, 0)
        Committer(query.log(), TransactionClient(client), PREFIX, 30).commit(MicroBatch(query_id, number), (own,))


def test_exactly_once_asks_for_the_rights_of_its_docs_and_no_other(granted: SecureKafka, topic: str) -> None:
    log_topic = f"{topic}-log"
    asked = asked_for(granted, lambda: commit_a_batch(granted, topic, log_topic, str(uuid.uuid4())))
    others = {grant for grant in asked if grant[1] != topic}
    assert others == of_page("Exactly-once", topic, log_topic)
    assert {grant[:3] for grant in asked - others} == {("TOPIC", topic, False)}
    assert len(numbers(granted, topic)) == 1


def test_exactly_once_works_with_the_rights_of_its_docs(granted: SecureKafka, topic: str) -> None:
    log_topic = f"{topic}-log"
    allow(granted, exactly_once(topic, log_topic))
    query_id = str(uuid.uuid4())
    for number in range(2):
        commit_a_batch(granted, topic, log_topic, query_id, number)
    with ClusterClient(producer_config(limited(granted))) as client:
        query = Query(granted, client, topic, log_topic, query_id)
        query.expect("0", "1")
        assert query.open_ids() == []


IMPLIED = "Describe"
"""Kafka takes it to be included in Write, so that it is not missed."""


@pytest.mark.fault("security", "a missing right")
@pytest.mark.whole("what is asked for is tested beside it")
def test_exactly_once_needs_each_right_of_its_docs(granted: SecureKafka, topic: str) -> None:
    for number, left_out in enumerate(sorted(exactly_once(topic, "log"))):
        if left_out[3] == IMPLIED:
            continue
        log_topic = f"{topic}-log-{number}"
        every = exactly_once(topic, log_topic)
        kind, name, prefixed, operation = left_out
        without = {(kind, name if name != "log" else log_topic, prefixed, operation)}
        if kind == "TRANSACTIONAL_ID":
            without |= {(kind, name, prefixed, IMPLIED)}
        assert without <= every
        allow(granted, every - without)
        with pytest.raises(KafkaSinkError) as caught:
            commit_a_batch(granted, topic, log_topic, str(uuid.uuid4()))
        assert grants_of(denial(caught.value).facts["acl"]) & without
        granted.revoke_all()
