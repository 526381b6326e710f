"""A commit goes on through what happens to its requests, and stops only where rows are lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import pytest

from spark_kafka_sink.broker.faults.effects import Change
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.errors import BrokerError, CommitStoppedError, CommitTimeoutError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.transaction_client import Ended, TransactionClient
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.find_coordinator import FindCoordinatorResponse
from spark_kafka_sink.protocol.apis.transactions import DescribeTransactionsResponse, EndTxnRequest, EndTxnResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from tests.exactly_once.opened import client_of, soon
from tests.exactly_once.queries import OPTIONS, CutError, Query
from tests.kafka.embedded import EmbeddedKafka
from tests.tiers import whole_but

pytestmark = [pytest.mark.embedded, pytest.mark.slow]


@pytest.fixture
def query(broker_query: Query) -> Query:
    return broker_query


COORDINATORS = [ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.END_TXN]
PASSING = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
]


@pytest.mark.parametrize("times", whole_but([1, 3], [3], "three lost connections begin with one"))
@pytest.mark.parametrize("cut", whole_but(["cut_before", "cut_after"], ["cut_after"], "a lost request is milder"))
@pytest.mark.parametrize("api", [*COORDINATORS, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_a_lost_connection_loses_and_doubles_nothing(
    broker: EmbeddedKafka, query: Query, api: ApiKey, cut: str, times: int
) -> None:
    query.run(0, "a")
    own = query.write("b", "c", batch=1)
    fault = getattr(broker.broker.faults, cut)(api, times=times)
    query.commit(1, own)
    assert fault.hits
    fault.remove()
    query.run(2, "d")
    query.expect("a", "b", "c", "d")
    assert query.open_ids() == []


@pytest.mark.fault("error codes", "14, 15, 16, 51 from a coordinator: retried, or found again")
@pytest.mark.parametrize("error", PASSING)
@pytest.mark.parametrize("applied", whole_but([False, True], [True], "an end that was done is the harder case"))
def test_a_passing_error_of_the_end_is_asked_about_again(
    broker: EmbeddedKafka, query: Query, error: ErrorCode, applied: bool
) -> None:
    own = query.write("a", "b")
    with broker.broker.faults.fail(ApiKey.END_TXN, error, times=4, applied=applied) as fault:
        query.commit(0, own)
        assert fault.hits == 4
    query.expect("a", "b")


def fenced(transactional_id: str, hits: list[str]) -> Change:
    """The answer to an end of this id says that another producer has it, whatever was done."""

    def change(request: Message, answer: Message) -> Message:
        assert isinstance(request, EndTxnRequest)
        assert isinstance(answer, EndTxnResponse)
        if request.transactional_id == transactional_id:
            hits.append("end")
            answer.error_code = ErrorCode.PRODUCER_FENCED
        return answer

    return change


def forgotten(transactional_id: str, since: list[str]) -> Change:
    """As of a coordinator whose log has lost the id, once there is something in `since`."""

    def change(request: Message, answer: Message) -> Message:
        assert isinstance(answer, DescribeTransactionsResponse)
        for state in answer.transaction_states:
            if state.transactional_id == transactional_id and since:
                state.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return answer

    return change


@pytest.mark.fault("error codes", "49 INVALID_PRODUCER_ID_MAPPING: fatal; in a roll-forward it proves nothing")
def test_an_answer_that_proves_nothing_is_no_reason_to_stop_where_the_coordinator_knows_what_was_done(
    broker: EmbeddedKafka, query: Query
) -> None:
    own = query.write("a", "b")
    change = fenced(own[0].handle.transactional_id, [])
    with broker.broker.faults.alter(ApiKey.END_TXN, change, times=None):
        assert query.commit(0, own).rows == 2
    query.expect("a", "b")


def without_coordinator(transactional_id: str) -> Change:
    """As where the partition of __transaction_state is offline that the id belongs to."""

    def change(request: Message, answer: Message) -> Message:
        assert isinstance(answer, FindCoordinatorResponse)
        for each in answer.coordinators:
            if each.key == transactional_id:
                each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer

    return change


def test_one_transaction_without_a_coordinator_holds_no_other_back(broker: EmbeddedKafka, query: Query) -> None:
    own = query.write("a", "b")
    kept = own[0].handle.transactional_id
    handles = [each.handle for each in own]
    with broker.broker.faults.alter(ApiKey.FIND_COORDINATOR, without_coordinator(kept), times=None), client_of(broker) as client:
        TransactionClient(client).describe([handles[1].transactional_id], soon())  # so that there is a connection
        # The first is asked for until the deadline; until then the second's request has to be answered.
        ended = TransactionClient(client).end(handles, True, time.monotonic() + 3)
    assert [ended[each.transactional_id].outcome for each in handles] == [Outcome.UNKNOWN, Outcome.COMMITTED]
    assert ended[kept].error == "the coordinator: COORDINATOR_NOT_AVAILABLE"
    query.abort(own[:1])
    query.expect("b")


def test_what_nobody_can_prove_is_never_written_again(broker: EmbeddedKafka, query: Query) -> None:
    own = query.write("a", "b")
    lost = own[0].handle.transactional_id

    ended = list[str]()
    faults = broker.broker.faults
    with (
        faults.alter(ApiKey.END_TXN, fenced(lost, ended), times=None),
        faults.alter(ApiKey.DESCRIBE_TRANSACTIONS, forgotten(lost, ended), times=None),
    ):
        for values in (own, query.write("a", "b")):
            with pytest.raises(CommitStoppedError, match=f"{lost}, 1 row in {query.topic} 0 \\(unknown\\)"):
                query.commit(0, values)
    query.expect("a", "b")


def test_a_job_that_may_be_committed_is_recovered_and_not_run_again(
    broker: EmbeddedKafka, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.id = MicroBatch.of_new_job().query_id
    own = query.write("a", "b")
    with (
        monkeypatch.context() as patch,
        broker.broker.faults.fail(ApiKey.END_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None),
        pytest.raises(CommitTimeoutError) as caught,
    ):
        query.hurried_when_prepared(patch).commit(MicroBatch(query.id, 0), own)
    assert f"run `spark-kafka-sink transactions recover --query {query.id} {OPTIONS}` within" in str(caught.value)
    query.commit(0, own)
    query.expect("a", "b")


def test_a_job_is_not_replayed_so_nobody_is_told_to_start_it_again_for_that(broker: EmbeddedKafka, query: Query) -> None:
    query.id = MicroBatch.of_new_job().query_id
    own = query.write("a", "b")
    lost = own[0].handle.transactional_id
    ended = list[str]()
    faults = broker.broker.faults
    with (
        faults.alter(ApiKey.END_TXN, fenced(lost, ended), times=None),
        faults.alter(ApiKey.DESCRIBE_TRANSACTIONS, forgotten(lost, ended), times=None),
        pytest.raises(CommitStoppedError) as caught,
    ):
        query.commit(0, own)
    assert f"resolve --query {query.id} --batch 0 {OPTIONS} --accept-loss`" in str(caught.value)
    assert "--replay" not in str(caught.value)
    query.expect("a", "b")


def test_what_is_open_still_after_an_answer_that_proves_nothing_is_ended_again(
    broker: EmbeddedKafka, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = list[Fault]()

    def reach(name: str, _: int) -> None:
        if name == "end.before" and not faults:  # before it EndTxn is the log's
            faults.append(broker.broker.faults.fail(ApiKey.END_TXN, ErrorCode.UNKNOWN_SERVER_ERROR, times=4))

    monkeypatch.setattr(failpoints, "reach", reach)
    assert query.commit(0, query.write("a", "b")).rows == 2
    assert [fault.hits for fault in faults] == [4]
    query.expect("a", "b")


def hold_ends(broker: EmbeddedKafka, own: tuple[PreparedTransaction, ...]) -> Fault:
    """None of the ends of these transactions is answered, and those of the commit log are."""
    ids = {each.handle.transactional_id for each in own}
    return broker.broker.faults.hold(ApiKey.END_TXN, times=None, when=lambda body: body.transactional_id in ids)


def test_ends_are_pipelined_and_each_can_be_watched(broker: EmbeddedKafka, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    own, reached = query.write("a", "b", "c"), list[str]()
    held = hold_ends(broker, own)

    def reach(name: str, _: int) -> None:
        reached.append(name)
        if reached.count("end.before") == len(own):
            held.remove()

    monkeypatch.setattr(failpoints, "reach", reach)
    query.commit(0, own)
    ends = [name for name in reached if name.startswith("end.")]
    assert ends == ["end.before"] * 3 + ["end.after"] * 3


@pytest.mark.parametrize(("name", "nth", "visible"), [("end.after", 1, "abc"), ("end.before", 3, "ab"), ("end.before", 1, "")])
def test_a_driver_that_dies_between_ends_leaves_those_that_it_has_sent_committed_and_others_open(
    broker: EmbeddedKafka, query: Query, monkeypatch: pytest.MonkeyPatch, name: str, nth: int, visible: str
) -> None:
    """Ends that nobody has heard the answers of are carried out."""
    own, reached = query.write("a", "b", "c"), Counter[str]()

    def reach(at: str, _: int) -> None:
        reached[at] += 1
        if (at, reached[at]) == (name, nth):
            raise CutError
        if reached["end.before"] == len(own):
            held.remove()

    with monkeypatch.context() as patch, hold_ends(broker, own) as held:
        patch.setattr(failpoints, "reach", reach)
        with pytest.raises(CutError):
            query.commit(0, own)
    query.expect(*visible)
    assert len(query.open_ids()) == 3 - len(visible)
    query.commit(0, own)
    query.expect("a", "b", "c")


def test_where_the_brokers_take_no_record_of_the_log_nothing_stays_open(broker: EmbeddedKafka, query: Query) -> None:
    own = query.write("a", "b")
    faults = broker.broker.faults
    with (
        faults.fail(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, times=None, topic=query.log_topic),
        pytest.raises(BrokerError, match=r"raise the topic's max\.message\.bytes") as caught,
    ):
        query.commit(0, own)
    assert caught.value.__notes__ == [f"batch 0 of {query.id}: 2 rows of this run are not committed."]
    assert query.open_ids() == []
    query.run(0, "a", "b")
    query.expect("a", "b")


def test_a_failed_job_one_of_whose_transactions_stays_open_says_so(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    own, job = query.write("a", "b"), MicroBatch(query.id, 0)
    end = TransactionClient.end

    def lost(
        client: TransactionClient, handles: Iterable[TransactionHandle], committed: bool, deadline: float
    ) -> dict[str, Ended]:
        """Those of tasks; that of the log is ended."""
        if committed:
            return end(client, handles, committed, deadline)
        return {each.transactional_id: Ended(Outcome.UNKNOWN, None, "no answer") for each in handles}

    with monkeypatch.context() as patch:
        patch.setattr(TransactionClient, "end", lost)
        assert query.committer().abort_job(job, own) is False
    assert len(query.open_ids()) == 2
    assert query.committer().abort_job(job, own) is True
    assert query.open_ids() == []
