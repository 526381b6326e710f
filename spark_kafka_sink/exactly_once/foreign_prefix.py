"""Whether a record of the commit log is of drivers with another prefix of transactional ids."""

from __future__ import annotations

from spark_kafka_sink.exactly_once.commit_record import CommitRecord
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds


def foreign_prefix(prefix: str, record: CommitRecord) -> str | None:
    """What a record's transactional ids begin with, where that is another prefix. Who claims the log under this one does not keep
    that query's driver from writing to it, and must not write either."""
    ids = TransactionalIds(prefix, record.query_id)
    foreign = (each.transactional_id for each in record.handles if not ids.owns(each.transactional_id))
    return next((each.rpartition(f".{record.query_id}.")[0] for each in foreign), None)
