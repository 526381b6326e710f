"""Batch jobs that ended long ago: each has an id that never comes back, so their records would stay in the log for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.foreign_prefix import foreign_prefix
from spark_kafka_sink.exactly_once.last_records import LoggedRecord
from spark_kafka_sink.exactly_once.share import is_job
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds

FORGET_AFTER_MS: Final = 60 * 60 * 1000
"""Until then somebody may ask: Spark, which aborts a job whose commit did not answer, or a person. A forgotten job would be taken
for one that has never committed, and be run again."""

_FINISHED: Final = frozenset({State.COMPLETE, State.ABORTED, State.CLOSED})


def old_jobs(logged: Iterable[LoggedRecord], prefix: str, now_ms: int) -> list[CommitRecord]:
    """Records of jobs under this prefix of transactional ids that may be forgotten. now_ms: since the epoch."""
    records = (each.record for each in logged if each.written_ms < now_ms - FORGET_AFTER_MS)
    finished = (each for each in records if is_job(each.query_id) and each.state in _FINISHED)
    return [each for each in finished if foreign_prefix(prefix, each) is None]


def forget(log: CommitLog, prefix: str, record: CommitRecord, deadline: float) -> bool:
    """Remove a record, if it is the last one of its job still. Raises ClaimLostError where somebody else takes the log."""
    claim = log.claim(TransactionalIds(prefix, record.query_id), deadline)
    if claim.last is None or claim.last.record_id != record.record_id:
        return False
    claim.forget(deadline)
    return True
