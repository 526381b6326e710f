"""What each error code of each API does to a transaction, row by row, as Kafka's TransactionManager has it."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from enum import Enum, auto
from types import NoneType

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.handlers import transactions
from spark_kafka_sink.errors import (
    AuthorizationError,
    KafkaSinkError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAuthorizationError,
    TransactionError,
)
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.transactions import requests
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from tests.kafka.witness import read_topic
from tests.producer.transactions.transacting import under_id
from tests.waiting import HOUR_MS, until

pytestmark = pytest.mark.slow

E, A = ErrorCode, ApiKey
UNKNOWN = 1234
_numbers = itertools.count()


def until_committed(broker: EmbeddedBroker, topic: str, expected: list[bytes]) -> None:
    """Markers take some ms."""
    until(lambda: committed(broker, topic), lambda found: found == expected, f"{expected} committed")


def committed(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    return [read.value for read in read_topic(broker.bootstrap_servers, topic, isolation_level="read_committed")]


class Then(Enum):
    """What a program sees."""

    GOES_ON = auto()
    FINDS = auto()  # it goes on, once the coordinator was looked for again
    ABORTABLE = auto()
    NO_END = auto()  # abortable, and the coordinator would not understand EndTxn: another epoch is asked for at once
    FENCED = auto()
    FATAL = auto()
    AGAIN = auto()  # init_transactions says so, and can be called again


# The code comes in answer to the request that the call makes.
TABLE: dict[ApiKey, dict[Then, tuple[int, ...]]] = {
    A.FIND_COORDINATOR: {
        Then.GOES_ON: (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT),
        Then.AGAIN: (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE),
        Then.FATAL: (E.INVALID_REQUEST, E.UNKNOWN_SERVER_ERROR, UNKNOWN),
    },
    A.INIT_PRODUCER_ID: {
        Then.GOES_ON: (E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS, E.REQUEST_TIMED_OUT),
        Then.FINDS: (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE),
        Then.AGAIN: (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE),
        Then.FENCED: (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        Then.FATAL: (
            E.INVALID_PRODUCER_ID_MAPPING,
            E.INVALID_TRANSACTION_TIMEOUT,
            E.UNSUPPORTED_VERSION,
            E.UNKNOWN_SERVER_ERROR,
            UNKNOWN,
        ),
    },
    A.ADD_PARTITIONS_TO_TXN: {
        Then.GOES_ON: (E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS, E.UNKNOWN_TOPIC_OR_PARTITION),
        Then.FINDS: (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE),
        Then.ABORTABLE: (
            *(E.TOPIC_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED),
            *(E.TRANSACTION_ABORTABLE, E.UNKNOWN_SERVER_ERROR, UNKNOWN),
        ),
        Then.NO_END: (E.UNKNOWN_PRODUCER_ID,),
        Then.FENCED: (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        Then.FATAL: (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_TXN_STATE),
    },
    A.ADD_OFFSETS_TO_TXN: {
        Then.GOES_ON: (E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS),
        Then.FINDS: (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE),
        Then.ABORTABLE: (*(E.GROUP_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE),),
        Then.NO_END: (E.UNKNOWN_PRODUCER_ID,),
        Then.FENCED: (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        Then.FATAL: (
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            E.INVALID_PRODUCER_ID_MAPPING,
            E.INVALID_TXN_STATE,
            E.UNKNOWN_SERVER_ERROR,
            UNKNOWN,
        ),
    },
    A.TXN_OFFSET_COMMIT: {
        Then.GOES_ON: (E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION, E.CONCURRENT_TRANSACTIONS),
        Then.FINDS: (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT),
        Then.ABORTABLE: (
            *(E.GROUP_AUTHORIZATION_FAILED, E.TOPIC_AUTHORIZATION_FAILED, E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID),
            *(
                E.ILLEGAL_GENERATION,
                E.STALE_MEMBER_EPOCH,
                E.GROUP_ID_NOT_FOUND,
                E.TRANSACTION_ABORTABLE,
                E.OFFSET_METADATA_TOO_LARGE,
            ),
        ),
        Then.FENCED: (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        Then.FATAL: (
            *(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.INVALID_PRODUCER_ID_MAPPING, E.UNSUPPORTED_FOR_MESSAGE_FORMAT),
            *(E.UNKNOWN_SERVER_ERROR, UNKNOWN),
        ),
    },
    A.END_TXN: {
        Then.GOES_ON: (E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS, E.REQUEST_TIMED_OUT),
        Then.FINDS: (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE),
        Then.ABORTABLE: (E.TRANSACTION_ABORTABLE,),
        Then.NO_END: (E.UNKNOWN_PRODUCER_ID,),
        Then.FENCED: (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        Then.FATAL: (
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            E.INVALID_PRODUCER_ID_MAPPING,
            E.INVALID_TXN_STATE,
            E.UNKNOWN_SERVER_ERROR,
            UNKNOWN,
        ),
    },
}
ONLY_VERSION_1 = (A.ADD_PARTITIONS_TO_TXN, A.ADD_OFFSETS_TO_TXN)

ROWS = [
    pytest.param(
        version,
        api,
        then,
        code,
        id=f"tv{version}-{api.name}-{error_facts(code).name}",
        marks=[] if version == 2 or api in ONLY_VERSION_1 else [pytest.mark.whole("the same row with version 2 is in make test")],
    )
    for api, thens in TABLE.items()
    for then, codes in thens.items()
    for code in codes
    for version in ((1,) if api in ONLY_VERSION_1 else (1, 2))
]


def transact(producer: Producer, topic: str, value: bytes) -> None:
    producer.begin_transaction()
    producer.send(topic, value)
    producer.send_offsets_to_transaction({(topic, 0): int(value)}, topic)
    producer.commit_transaction()


def raised_by(*calls: Callable[[], object]) -> KafkaSinkError | None:
    try:
        for call in calls:
            call()
    except KafkaSinkError as error:
        return error
    return None


@pytest.mark.fault("error codes", "120 TRANSACTION_ABORTABLE")
@pytest.mark.fault("error codes", "14, 15, 16, 51 from a coordinator: retried, or found again")
@pytest.mark.fault("error codes", "59 UNKNOWN_PRODUCER_ID: a new epoch; a transaction can only be aborted")
@pytest.mark.fault("error codes", "49 INVALID_PRODUCER_ID_MAPPING: fatal; in a roll-forward it proves nothing")
@pytest.mark.fault("error codes", "48 INVALID_TXN_STATE: abortable on Produce, fatal on coordinators' APIs")
@pytest.mark.fault("error codes", "47 INVALID_PRODUCER_EPOCH: abortable on Produce, fenced on coordinators' APIs")
@pytest.mark.parametrize(("transaction_version", "api", "then", "code"), ROWS, indirect=["transaction_version"])
def test_a_row(broker: EmbeddedBroker, api: ApiKey, then: Then, code: int) -> None:
    topic = f"row-{os.getpid()}-{next(_numbers)}"
    times = 2 if then in (Then.GOES_ON, Then.FINDS) else 1
    settings = {"retry_backoff_ms": 1, "max_block_ms": HOUR_MS}
    with under_id(broker.bootstrap_servers, topic, initialized=False, **settings) as producer:
        fault = broker.faults.fail(api, code, times=times)
        finding = broker.faults.watch(ApiKey.FIND_COORDINATOR)
        seen = raised_by(producer.init_transactions, lambda: transact(producer, topic, b"1"))
        assert fault.hits == times
        assert then is Then.GOES_ON or then is Then.FINDS or error_facts(code).name in str(seen)
        if api is not ApiKey.FIND_COORDINATOR:
            assert (finding.hits > 2) == (then is Then.FINDS)  # one for the transactional id, one for the group
        if then is Then.NO_END:
            no_end(broker, producer, seen)
        else:
            AFTER[then](producer, topic, seen)
    if then not in (Then.NO_END, Then.FENCED, Then.FATAL):
        until_committed(broker, topic, [b"1", b"2"] if seen is None else [b"2"])


def goes_on(producer: Producer, topic: str, seen: KafkaSinkError | None) -> None:
    assert seen is None
    transact(producer, topic, b"2")


def refused_class(seen: BaseException | None) -> type[TransactionError]:
    """The class for a code of a missing right is an AuthorizationError as well, and says what to grant."""
    assert isinstance(seen, TransactionError)
    if not seen.facts["error"].endswith("_AUTHORIZATION_FAILED"):
        return TransactionError
    assert f"; to grant it, run `{seen.facts['acl']}`" in str(seen)
    assert issubclass(TransactionAuthorizationError, AuthorizationError)
    return TransactionAuthorizationError


def again(producer: Producer, topic: str, seen: KafkaSinkError | None) -> None:
    assert type(seen) is refused_class(seen)
    producer.init_transactions()
    transact(producer, topic, b"2")


def abortable(producer: Producer, topic: str, seen: KafkaSinkError | None) -> None:
    assert type(seen) is TransactionAbortableError
    assert seen.__cause__ is None or type(seen.__cause__) is refused_class(seen.__cause__)
    producer.abort_transaction()
    transact(producer, topic, b"2")


def no_end(broker: EmbeddedBroker, producer: Producer, seen: KafkaSinkError | None) -> None:
    """Where the coordinator has the open transaction all the same, to ask for another epoch is to be fenced by oneself."""
    assert type(seen) is TransactionAbortableError
    ending, asking = broker.faults.watch(ApiKey.END_TXN), broker.faults.watch(ApiKey.INIT_PRODUCER_ID)
    assert type(raised_by(producer.abort_transaction)) in (NoneType, ProducerFencedError)
    assert (ending.hits, asking.hits > 0) == (0, True)


def fenced(producer: Producer, topic: str, seen: KafkaSinkError | None) -> None:
    assert type(seen) is ProducerFencedError
    assert str(raised_by(producer.begin_transaction)) == str(raised_by(producer.init_transactions)) == str(seen)


def fatal(producer: Producer, topic: str, seen: KafkaSinkError | None) -> None:
    assert type(seen) is refused_class(seen)
    assert str(raised_by(producer.begin_transaction)) == str(raised_by(producer.abort_transaction)) == str(seen)


AFTER: dict[Then, Callable[[Producer, str, KafkaSinkError | None], None]] = {
    Then.GOES_ON: goes_on,
    Then.FINDS: goes_on,
    Then.AGAIN: again,
    Then.ABORTABLE: abortable,
    Then.FENCED: fenced,
    Then.FATAL: fatal,
}


@pytest.mark.parametrize("transaction_version", [1], ids=["tv1"], indirect=True)
@pytest.mark.parametrize("code", [E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_LOAD_IN_PROGRESS, E.TOPIC_AUTHORIZATION_FAILED])
def test_what_was_not_tried_because_of_another_topic_is_not_what_counts(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    innocent, blamed = (f"{kind}-{os.getpid()}-{next(_numbers)}" for kind in ("innocent", "blamed"))
    with under_id(broker.bootstrap_servers, innocent, linger_ms=100_000, delivery_timeout_ms=200_000) as producer:
        for topic in (innocent, blamed):
            producer.partitions_for(topic)
        left = [{(blamed, 0): code}]  # once the coordinator refuses that, and so tries nothing of the request
        monkeypatch.setattr(transactions, "_refused", lambda *_: left.pop() if left else {})
        producer.begin_transaction()
        for topic in (innocent, blamed):
            producer.send(topic, b"1")
        producer.flush(60)  # both at once
        seen = raised_by(producer.commit_transaction)
        assert not left
    if code is E.TOPIC_AUTHORIZATION_FAILED:
        assert f"topic {blamed} partition 0: TOPIC_AUTHORIZATION_FAILED; " in str(seen)
        assert f" is not authorized for Write on topic {blamed}; " in str(seen)
    else:
        assert seen is None
        until_committed(broker, innocent, [b"1"])


@pytest.mark.fault("transaction", "FindCoordinator or InitProducerId is refused: the error names delivery.guarantee")
@pytest.mark.parametrize("transaction_version", [2], ids=["tv2"], indirect=True)
@pytest.mark.parametrize("api", [A.FIND_COORDINATOR, A.INIT_PRODUCER_ID])
def test_a_cluster_that_serves_no_transactions_is_an_error_that_says_what_to_set(broker: EmbeddedBroker, api: ApiKey) -> None:
    with under_id(broker.bootstrap_servers, "refused", initialized=False) as producer:
        broker.faults.fail(api, E.UNSUPPORTED_VERSION)
        refused = raised_by(producer.init_transactions)
    assert type(refused) is TransactionError
    assert "UNSUPPORTED_VERSION; this cluster does not serve transactions to this client; in Spark, set" in str(refused)
    assert "delivery.guarantee=at-least-once" in str(refused)


def test_brokers_without_transactions_are_named_as_the_cause(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    # To this client these brokers are as those of before Kafka 0.11, or a stand-in that lacks it.
    monkeypatch.setattr(requests, "INIT_PRODUCER_ID", INIT_PRODUCER_ID.limited_to(90, 90))
    with under_id(broker.bootstrap_servers, "without", initialized=False) as producer:
        refused = raised_by(producer.init_transactions)
    assert type(refused) is TransactionError
    assert re.search(
        r"transactions require Kafka 3\.0 or newer, and exactly-once 3\.8 or newer: broker 1 .* INIT_PRODUCER_ID", str(refused)
    )
