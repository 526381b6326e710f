"""What coordinators say of transactions, and what that proves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.error_codes import ErrorCode

_END_TXN_OF_VERSION_2 = 5
_ABORTED_STATES = ("PrepareAbort", "CompleteAbort")


class Outcome(StrEnum):
    """Of a transaction that was to be committed. unknown: nothing is proved, so it is never written again by itself."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """What DescribeTransactions answers of a transactional id that the coordinator knows.

    state: Kafka's name, as in "Ongoing". start_time_ms: since the epoch, on the broker's clock; -1 where nothing is open.
    """

    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[tuple[str, str], ...] = ()


def proved_by(handle: TransactionHandle, answer: ErrorCode, described: TransactionDescription | None) -> Outcome:
    """What the last answer to EndTxn(commit) and a later DescribeTransactions (needed after any answer but NONE and
    INVALID_TXN_STATE) prove, where the transactional id was not initialised since and one EndTxn version is always used.

    With transaction version 1 one that timed out answers PRODUCER_FENCED, as any does after an InitProducerId. But a time-out
    bumps the epoch by one and leaves an aborted transaction, InitProducerId an empty one. (Version 2: INVALID_TXN_STATE.)
    """
    if answer is ErrorCode.NONE:
        return Outcome.COMMITTED
    if answer is ErrorCode.INVALID_TXN_STATE:
        return Outcome.ABORTED
    if handle.end_txn_version >= _END_TXN_OF_VERSION_2 or described is None or described.state not in _ABORTED_STATES:
        return Outcome.UNKNOWN
    is_timed_out = (described.producer_id, described.epoch) == (handle.producer_id, handle.epoch + 1)
    return Outcome.ABORTED if is_timed_out else Outcome.UNKNOWN
