"""Batch jobs that ended long ago: each has an id that never comes back, so their records would stay in the log for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.foreign_prefix import foreign_prefix
from spark_kafka_sink.exactly_once.last_records import LoggedRecord
from spark_kafka_sink.exactly_once.share import is_job
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds

COMPLETE_FOR_MS: Final = 48 * 60 * 60 * 1000
"""Until then somebody may ask: Spark, which aborts a job whose commit did not answer, or a person, for whom `recover` has ended
it meanwhile. A forgotten job is taken for one that has never committed, and run again. Not for ever: a driver that starts reads
these records, some 150 bytes a transaction."""

ABORTED_FOR_MS: Final = 60 * 60 * 1000
"""To forget these says the same: nothing of the job is visible."""

_KEPT_FOR_MS: Final[Mapping[State, int]] = {
    State.COMPLETE: COMPLETE_FOR_MS,
    State.ABORTED: ABORTED_FOR_MS,
    State.CLOSED: ABORTED_FOR_MS,
}


def old_jobs(logged: Iterable[LoggedRecord], prefix: str, now_ms: int) -> list[CommitRecord]:
    """Records of jobs under this prefix of transactional ids that may be forgotten. now_ms: since the epoch, by a clock that goes
    like those of the jobs' drivers to within some minutes."""
    records = (each.record for each in logged if _is_old(each, now_ms))
    return [each for each in records if foreign_prefix(prefix, each) is None]


def _is_old(logged: LoggedRecord, now_ms: int) -> bool:
    kept_for_ms = _KEPT_FOR_MS.get(logged.record.state)
    return kept_for_ms is not None and is_job(logged.record.query_id) and logged.written_ms < now_ms - kept_for_ms


def forget(log: CommitLog, prefix: str, record: CommitRecord, deadline: float) -> bool:
    """Remove a record, if it is the last one of its job still. Raises ClaimLostError where somebody else takes the log."""
    claim = log.claim(TransactionalIds(prefix, record.query_id), deadline)
    if claim.last is None or claim.last.record_id != record.record_id:
        return False
    claim.forget(deadline)
    return True
