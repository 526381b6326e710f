"""The same requests to Kafka 4.1 and to the embedded broker: the same answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.transaction.transaction_metadata import ProducerIdAndEpoch
from spark_kafka_sink.protocol.apis.transactions import AddPartitionsToTxnTopic
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.waiting import until

E = ErrorCode


@pytest.fixture
def txn(kafka: Kafka, new_topic: NewTopic) -> Iterator[Transactor]:
    topic = new_topic(2)
    with Client.at(kafka.bootstrap_servers) as client:
        found = Transactor(client, topic, topic)
        found.find()
        yield found


def started(txn: Transactor) -> ProducerIdAndEpoch:
    """A producer with an id. By then nothing else goes on with it."""
    answer = txn.settled(txn.init)
    assert answer.code is E.NONE
    return answer.producer


def next_epoch(producer: ProducerIdAndEpoch, by: int = 1) -> ProducerIdAndEpoch:
    return producer._replace(producer_epoch=producer.producer_epoch + by)


def no_id(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return producer._replace(producer_id=producer.producer_id + 1_000_000)


class TestInitProducerId:
    def test_what_is_wrong_with_the_request(self, txn: Transactor) -> None:
        assert txn.init(identity="").code is E.INVALID_REQUEST
        assert txn.init(timeout_ms=0).code is E.INVALID_TRANSACTION_TIMEOUT
        assert txn.init(timeout_ms=-1).code is E.INVALID_TRANSACTION_TIMEOUT
        assert txn.init(timeout_ms=15 * 60 * 1000 + 1).code is E.INVALID_TRANSACTION_TIMEOUT
        assert txn.init(ProducerIdAndEpoch(1, -1)) == (E.INVALID_REQUEST, (-1, -1))
        assert txn.init(ProducerIdAndEpoch(-1, 1)).code is E.INVALID_REQUEST
        assert txn.settled(lambda: txn.init(timeout_ms=15 * 60 * 1000)).code is E.NONE

    def test_each_is_the_next_epoch(self, txn: Transactor) -> None:
        first = started(txn)
        assert first.producer_epoch == 0
        assert txn.init(version=0) == (E.NONE, next_epoch(first))
        assert txn.init(version=5) == (E.NONE, next_epoch(first, 2))

    def test_a_bump_and_its_repetition(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.init(first) == (E.NONE, next_epoch(first))
        assert txn.init(first) == (E.NONE, next_epoch(first))
        assert txn.init(next_epoch(first)) == (E.NONE, next_epoch(first, 2))

    @pytest.mark.parametrize(("version", "code"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED)])
    def test_a_bump_of_who_was_fenced(self, txn: Transactor, version: int, code: ErrorCode) -> None:
        first = started(txn)
        started(txn)
        assert txn.init(first, version=version) == (code, (-1, -1))
        assert txn.init(no_id(first), version=version).code is code

    def test_a_bump_of_an_id_that_nobody_knows(self, txn: Transactor) -> None:
        assert txn.settled(lambda: txn.init(ProducerIdAndEpoch(123_456, 7))).producer.producer_epoch == 0

    def test_fences_a_running_transaction(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.produce(first) is E.NONE
        assert txn.init().code is E.CONCURRENT_TRANSACTIONS
        txn.settle()
        assert txn.state() == "CompleteAbort"
        assert txn.settled(txn.init) == (E.NONE, next_epoch(first, 2))
        assert txn.commit(first).code is E.PRODUCER_FENCED
        assert txn.commit(first, version=4).code is E.PRODUCER_FENCED
        assert txn.produce(first, 1, version=11) is E.INVALID_PRODUCER_EPOCH
        assert txn.produce(first, 1, version=12) is E.INVALID_PRODUCER_EPOCH
        assert txn.add(first, 1) == [E.PRODUCER_FENCED]
        assert txn.add_offsets(first) is E.PRODUCER_FENCED
        assert txn.committed() == []

    def test_the_own_bump_of_a_running_transaction(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.produce(first) is E.NONE
        assert txn.init(first).code is E.CONCURRENT_TRANSACTIONS
        txn.settle()
        # The abort has bumped it, so that the repeated request is one that was answered before (KAFKA-19367).
        assert txn.settled(lambda: txn.init(first)) == (E.NONE, next_epoch(first))


class TestVersion1:
    """The client adds partitions itself, and keeps its epoch."""

    def test_partitions_that_cannot_be_added(self, txn: Transactor) -> None:
        who = started(txn)
        there, nowhere = AddPartitionsToTxnTopic(txn.topic, [0]), AddPartitionsToTxnTopic("no-such-topic", [1])
        internal = AddPartitionsToTxnTopic("__consumer_offsets", [0])
        assert txn.add_topics(who, [there, nowhere]) == [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert txn.add(who, 7) == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert txn.add_topics(who, [internal]) == [E.TOPIC_AUTHORIZATION_FAILED]
        assert txn.state() == "Empty"

    @pytest.mark.parametrize(("version", "fenced"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)])
    def test_whose_producer_is_another(self, txn: Transactor, version: int, fenced: ErrorCode) -> None:
        who = started(txn)
        assert txn.add(no_id(who), 0, version=version) == [E.INVALID_PRODUCER_ID_MAPPING]
        assert txn.add(next_epoch(who), 0, version=version) == [fenced]
        assert txn.add_offsets(no_id(who), version=version) is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.add_offsets(next_epoch(who), version=version) is fenced
        assert txn.commit(no_id(who), version=version).code is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.commit(next_epoch(who), version=version).code is fenced

    def test_records_need_their_partition_in_the_transaction(self, txn: Transactor) -> None:
        who = started(txn)
        assert txn.produce(who, version=10) is E.INVALID_TXN_STATE
        assert txn.produce(who, version=11) is E.TRANSACTION_ABORTABLE
        assert txn.add(who, 0) == [E.NONE]
        assert txn.produce(who, version=11) is E.NONE
        assert txn.produce(who, partition=1, version=11) is E.TRANSACTION_ABORTABLE
        assert txn.produce(no_id(who), partition=1, version=11) is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.produce(next_epoch(who), partition=1, version=11) is E.INVALID_PRODUCER_EPOCH

    def test_commit_and_its_repetition(self, txn: Transactor) -> None:
        who = started(txn)
        assert txn.add(who, 0) == [E.NONE]
        assert txn.produce(who, version=11) is E.NONE
        assert txn.committed() == []
        assert txn.commit(who, version=4) == (E.NONE, (-1, -1))
        assert txn.settled(lambda: txn.commit(who, version=4)).code is E.NONE
        assert txn.abort(who, version=4).code is E.INVALID_TXN_STATE
        assert txn.committed() == ["x"]
        assert txn.add(who, 0) == [E.NONE]
        assert txn.produce(who, 1, value="y", version=11) is E.NONE
        assert txn.abort(who, version=4).code is E.NONE
        assert txn.settled(lambda: txn.abort(who, version=4)).code is E.NONE
        assert txn.commit(who, version=4).code is E.INVALID_TXN_STATE
        assert txn.committed() == ["x"]

    def test_the_end_of_nothing(self, txn: Transactor) -> None:
        who = started(txn)
        assert txn.commit(who, version=4).code is E.INVALID_TXN_STATE
        assert txn.abort(who, version=4).code is E.INVALID_TXN_STATE
        assert txn.commit(who._replace(producer_epoch=1), version=4).code is E.PRODUCER_FENCED

    def test_an_id_that_nobody_knows(self, txn: Transactor) -> None:
        who = ProducerIdAndEpoch(1, 0)
        assert txn.add(who, 0) == [E.INVALID_PRODUCER_ID_MAPPING]
        assert txn.add_offsets(who) is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.commit(who, version=4).code is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.commit(who).code is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.produce(who, version=11) is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.produce(who, version=12) is E.INVALID_PRODUCER_ID_MAPPING

    def test_offsets_are_there_with_the_commit(self, txn: Transactor) -> None:
        who = started(txn)
        assert txn.commit_offset(who, 5, version=3) is E.INVALID_TXN_STATE
        assert txn.commit_offset(who, 5, version=4) is E.TRANSACTION_ABORTABLE
        assert txn.add_offsets(who) is E.NONE
        assert txn.commit_offset(who, 5, version=3) is E.NONE
        assert txn.offset() == -1
        assert txn.commit(who, version=4).code is E.NONE
        txn.settle()
        assert txn.offset() == 5
        assert txn.add_offsets(who) is E.NONE
        assert txn.commit_offset(who, 9, version=4) is E.NONE
        assert txn.abort(who, version=4).code is E.NONE
        txn.settle()
        assert txn.offset() == 5


class TestVersion2:
    """The broker adds partitions, and each end is a new epoch."""

    def test_commit_and_its_repetition(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.produce(first) is E.NONE
        assert txn.produce(first, 1, value="y") is E.NONE
        assert txn.produce(first, partition=1) is E.NONE
        assert txn.commit(first) == (E.NONE, next_epoch(first))
        assert txn.settled(lambda: txn.commit(first)) == (E.NONE, next_epoch(first))
        assert txn.abort(first).code is E.INVALID_TXN_STATE
        assert txn.committed(0) == ["x", "y"]
        assert txn.committed(1) == ["x"]

    def test_abort_and_its_repetition(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.produce(first) is E.NONE
        assert txn.abort(first) == (E.NONE, next_epoch(first))
        assert txn.settled(lambda: txn.abort(first)) == (E.NONE, next_epoch(first))
        assert txn.commit(first) == (E.INVALID_TXN_STATE, (-1, -1))
        assert txn.committed() == []

    def test_an_end_of_the_transaction_before(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.produce(first) is E.NONE
        second = txn.commit(first).producer
        txn.settle()
        assert txn.produce(second) is E.NONE
        assert txn.commit(first).code is E.PRODUCER_FENCED
        assert txn.abort(first).code is E.PRODUCER_FENCED
        third = txn.commit(second).producer
        txn.settle()
        assert third == next_epoch(first, 2)
        assert txn.commit(first).code is E.PRODUCER_FENCED
        assert txn.produce(first, 1) is E.INVALID_PRODUCER_EPOCH

    @pytest.mark.parametrize("before", ["nothing", "a commit", "an abort"])
    def test_the_end_of_nothing(self, txn: Transactor, before: str) -> None:
        who = started(txn)
        if before != "nothing":
            assert txn.produce(who) is E.NONE
            who = txn.end(who, before == "a commit").producer
            txn.settle()
        assert txn.commit(who).code is E.INVALID_TXN_STATE
        assert txn.abort(who) == (E.NONE, next_epoch(who))
        assert txn.settled(lambda: txn.abort(who)) == (E.NONE, next_epoch(who))
        assert txn.state() == "CompleteAbort"
        assert txn.abort(next_epoch(who, 2)).code is E.PRODUCER_FENCED

    def test_whose_producer_is_another(self, txn: Transactor) -> None:
        who = started(txn)
        assert txn.commit(no_id(who)).code is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.commit(next_epoch(who)).code is E.PRODUCER_FENCED
        assert txn.produce(no_id(who)) is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.produce(next_epoch(who)) is E.INVALID_PRODUCER_EPOCH

    def test_sequences_begin_again_with_each_epoch(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.produce(first) is E.NONE
        assert txn.produce(first, 2) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert txn.produce(first, 0) is E.NONE  # a copy, which is not stored again
        second = txn.commit(first).producer
        txn.settle()
        assert txn.produce(second, 0, value="y") is E.NONE
        assert txn.commit(second).code is E.NONE
        txn.settle()
        assert txn.committed() == ["x", "y"]

    def test_ends_of_both_versions_mixed(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.add(first, 0) == [E.NONE]
        assert txn.commit(first, version=4).code is E.NONE
        txn.settle()
        assert txn.commit(first, version=5).code is E.INVALID_TXN_STATE
        assert txn.produce(first) is E.NONE
        second = txn.commit(first, version=5).producer
        txn.settle()
        assert txn.commit(first, version=4).code is E.PRODUCER_FENCED
        assert txn.commit(second, version=4).code is E.NONE
        assert txn.abort(second, version=4).code is E.INVALID_TXN_STATE

    def test_offsets_are_there_with_the_commit(self, txn: Transactor) -> None:
        first = started(txn)
        assert txn.commit_offset(first, 5) is E.NONE
        assert txn.offset() == -1
        second = txn.commit(first).producer
        txn.settle()
        assert txn.offset() == 5
        assert txn.commit_offset(second, 9) is E.NONE
        assert txn.abort(second).code is E.NONE
        txn.settle()
        assert txn.offset() == 5

    def test_offsets_of_another_producer(self, txn: Transactor) -> None:
        who = started(txn)
        assert txn.commit_offset(no_id(who), 1) is E.INVALID_PRODUCER_ID_MAPPING
        assert txn.commit_offset(next_epoch(who), 1) is E.INVALID_PRODUCER_EPOCH
        assert txn.commit_offset(who, 1) is E.NONE
        assert txn.commit_offset(next_epoch(who), 1) is E.INVALID_PRODUCER_EPOCH
        assert txn.commit(who).code is E.NONE
        txn.settle()
        assert txn.commit_offset(who, 2) is E.INVALID_PRODUCER_EPOCH
        assert txn.offset() == 1


class TestBetweenBrokers:
    def test_verification_and_adding(self, txn: Transactor) -> None:
        who = started(txn)
        assert txn.as_broker(who, 0, verify_only=True) == [E.TRANSACTION_ABORTABLE]
        assert txn.as_broker(who, 0, verify_only=False) == [E.NONE]
        assert txn.as_broker(who, 0, 1, verify_only=True) == [E.NONE, E.TRANSACTION_ABORTABLE]
        assert txn.as_broker(no_id(who), 0, verify_only=True) == [E.INVALID_PRODUCER_ID_MAPPING]
        assert txn.as_broker(next_epoch(who), 0, verify_only=True) == [E.PRODUCER_FENCED]
        assert txn.as_broker(who, 9, verify_only=True) == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert txn.as_broker(who, 0, 9, verify_only=False, version=4) == [
            E.OPERATION_NOT_ATTEMPTED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ]


class TestQueries:
    def test_description(self, txn: Transactor) -> None:
        assert txn.describe().error_code == E.TRANSACTIONAL_ID_NOT_FOUND
        assert txn.describe("").error_code == E.INVALID_REQUEST
        who = started(txn)
        empty = txn.describe()
        assert (empty.transaction_state, empty.transaction_start_time_ms, empty.topics) == ("Empty", -1, ())
        assert (empty.producer_id, empty.producer_epoch, empty.transaction_timeout_ms) == (*who, 60_000)
        txn.produce(who, partition=1)
        running = txn.describe()
        assert running.transaction_state == "Ongoing"
        assert running.transaction_start_time_ms > 0
        assert [(topic.topic, list(topic.partitions)) for topic in running.topics] == [(txn.topic, [1])]
        txn.commit(who)
        txn.settle()
        ended = txn.describe()
        assert (ended.transaction_state, list(ended.topics)) == ("CompleteCommit", [])
        assert ended.transaction_start_time_ms == running.transaction_start_time_ms

    def test_list(self, txn: Transactor) -> None:
        who = started(txn)

        def names(**filters: object) -> list[str]:
            found = [each.transactional_id for each in txn.listed(**filters).transaction_states]
            return [name for name in found if name == txn.identity]

        mine = [txn.identity]
        assert names() == mine
        assert names(state_filters=["Empty"]) == mine
        assert names(state_filters=["Ongoing", "CompleteCommit"]) == []
        assert names(producer_id_filters=[who.producer_id]) == mine
        assert names(producer_id_filters=[who.producer_id + 1_000_000]) == []
        assert names(duration_filter=0) == mine  # without a transaction: since 1970
        txn.produce(who)
        assert names(state_filters=["Ongoing"], duration_filter=600_000) == []
        assert names(transactional_id_pattern="test-.*") == mine
        assert names(transactional_id_pattern="test-") == []
        assert names(transactional_id_pattern="") == mine
        assert names(transactional_id_pattern="(.+)+" * 10 + "!") == []  # in a time that Python's `re` does not keep
        unknown = txn.listed(state_filters=["Nonsense"])
        assert (unknown.error_code, list(unknown.unknown_state_filters)) == (E.NONE, ["Nonsense"])
        assert list(unknown.transaction_states) == []
        assert txn.listed(transactional_id_pattern="(").error_code == E.INVALID_REGULAR_EXPRESSION


def test_after_its_timeout_a_transaction_is_aborted(txn: Transactor) -> None:
    first = txn.settled(lambda: txn.init(timeout_ms=100)).producer
    assert txn.produce(first) is E.NONE
    until(txn.state, lambda state: state == "CompleteAbort", "not aborted")
    assert txn.commit(first).code is E.INVALID_TXN_STATE
    assert txn.commit(first, version=4).code is E.PRODUCER_FENCED
    assert txn.abort(first) == (E.NONE, next_epoch(first))
    assert txn.produce(first, 1) is E.INVALID_PRODUCER_EPOCH
    assert txn.committed() == []
