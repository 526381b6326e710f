"""Which broker a failpoint of a batch depends on most."""

from __future__ import annotations

from spark_kafka_sink.exactly_once.commit_log import partition_of
from spark_kafka_sink.options.commit_log_options import CommitLogSettings
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.kills import TASK_FAILPOINTS
from tests.faults.exactly_once.open_transactions import open_by_coordinator
from tests.kafka.brokers import Brokers


def broker_that_matters(brokers: Brokers, query: Query, failpoint: str) -> int:
    """Of a task's failpoints the leader of a partition that rows go to, of an EndTxn the coordinator of a transaction that waits
    for one, of all others the leader of the query's partition of the commit log."""
    if failpoint in TASK_FAILPOINTS:
        return brokers.leader(query.topic)
    waiting = open_by_coordinator(brokers, query.id) if failpoint.startswith("end.") else {}
    return next(iter(waiting), 0) or _leader_of_the_log(brokers, query)


def _leader_of_the_log(brokers: Brokers, query: Query) -> int:
    log = CommitLogSettings()
    topic = query.options.get("commit.log.topic", log.topic)
    partitions = int(query.options.get("commit.log.partitions", log.partitions))
    return brokers.leader(topic, partition_of(query.id, partitions))
