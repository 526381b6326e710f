"""Every fault that this project tests for, by area. Tests name theirs: `@pytest.mark.fault("metadata", "stale leader epoch")`.

fault_table.py makes the table in README.md of these marks. test_fault_table.py looks for lines without a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Area(NamedTuple):
    """Faults of one kind. title: of its rows in the table."""

    title: str
    lines: tuple[str, ...]


AREAS: Final[Mapping[str, Area]] = {
    "connection": Area(
        "Connection",
        (
            "refused",
            "black hole, bounded by the setup timeout",
            "reset before the answer to a Produce request",
            "the first address of a name is dead",
            "a broker changes host and port",
            "an idle connection is closed",
            "silence of a broker",
            "the client is paused for longer than the request timeout",
            "a slow, rate-limited link",
        ),
    ),
    "metadata": Area(
        "Metadata",
        (
            "NOT_LEADER with the new leader in the answer",
            "NOT_LEADER without it",
            "stale leader epoch",
            "stale topic id",
            "partition without a leader",
            "unknown topic ends at max.block.ms and names what was tried",
            "topic unused for long, with batches waiting",
            "partitions added",
            "topic deleted and made again",
            "every bootstrap or known broker replaced",
        ),
    ),
    "produce answers": Area(
        "Produce answers",
        (
            "each code, once and twice",
            "an unknown code",
            "a partition twice in the answer",
            "a partition missing in the answer",
            "REQUEST_TIMED_OUT of a batch that was or was not stored",
            "throttling",
        ),
    ),
    "sequence": Area(
        "Sequence",
        (
            "leader killed with five in flight",
            "the first of five fails for good",
            "answers out of order",
            "DUPLICATE_SEQUENCE_NUMBER is success",
            "UNKNOWN_PRODUCER_ID with each kind of log start",
            "wrap at 2^31",
            "delivery timeout in flight: the numbers are never used again",
            "a split keeps order",
            "a batch that times out and is then refused",
            "any faults in any order",
        ),
    ),
    "transaction": Area(
        "Transaction",
        (
            "a zombie with the same id is fenced",
            "a commit that timed out is committed, never aborted",
            "the coordinator moves between steps",
            "CONCURRENT_TRANSACTIONS",
            "the transaction timeout has passed",
            "a late EndTxn does not end the next transaction",
            "an empty transaction",
            "read_committed sees nothing aborted and nothing torn",
            "a batch that expired unsent makes the commit fail",
            "AddPartitionsToTxn is pending when the transaction ends",
            "the coordinator has forgotten the id (INVALID_PRODUCER_ID_MAPPING)",
            "FindCoordinator or InitProducerId is refused: the error names delivery.guarantee",
        ),
    ),
    "memory": Area(
        "Memory",
        (
            "a batch expires in flight while the pool is under pressure (KAFKA-19012)",
            "the pool is full for max.block.ms",
            "a record over buffer.memory or max.request.size",
            "close with blocked senders",
            "a broker is paused: memory stays bounded",
            "failures of every kind give memory back",
        ),
    ),
    "record": Area(
        "Record",
        (
            "MESSAGE_TOO_LARGE splits, a single record fails alone",
            "INVALID_RECORD and INVALID_TIMESTAMP with record_errors",
            "null key, value and header value; empty ones",
            "bad timestamp",
            "null topic, illegal name",
            "partition negative or out of range",
            "null header, header without a key",
            "no UTF-8",
            "bad rows of every kind, with on.error",
            "a dead-letter topic that is missing, forbidden, compacted or too narrow",
        ),
    ),
    "rate": Area(
        "Rate",
        (
            "a broker's quota is exceeded (KIP-219)",
            "a rate limit",
        ),
    ),
    "hostile bytes": Area(
        "Hostile bytes, both sides",
        (
            "frame size negative, zero or over the limit",
            "HTTP or a TLS alert instead of Kafka",
            "truncated frame",
            "one byte at a time",
            "unknown API key or version",
            "negative or huge lengths of arrays and varints",
            "decompression bomb",
            "corrupt lz4 and other codecs",
            "wrong CRC",
            "wrong correlation id",
        ),
    ),
    "security": Area(
        "Security",
        (
            "untrusted authority, wrong host name, expired certificate",
            "wrong password: fatal, no storm of retries",
            "SCRAM: wrong signature, nonce, too few iterations",
            "no secret in logs, repr, exceptions, Spark's UI and event log",
            "re-authentication with requests in flight",
            "a missing right",
        ),
    ),
    "spark": Area(
        "Spark and exactly-once",
        (
            "a task raises mid-write and is retried",
            "speculation",
            "a stage that is run again",
            "SIGKILL of processes that write dead letters",
            "SIGKILL of a Python worker",
            "SIGKILL of an executor",
            "executors and workers of a cluster lost and added",
            "containers of YARN killed: an executor's and the application master's",
            "brokers killed",
            "the driver or its commit process killed before, during and after the commit",
            "a replayed batch with other partitioning",
            "two drivers of one query",
            "a paused driver whose successor has committed reads the log before BATCH_ABORTED",
            "several queries with one prefix and one log",
            "downtime over the transaction timeout",
            "a query is stopped between its tasks and its commit",
            "commit() called twice",
            "the driver of a batch job dies for good",
            "a rule that is broken in the code",
            "the commit log's topic is deleted between batches",
            "an unusable commit log, before the first batch's tasks",
        ),
    ),
    "error codes": Area(
        "Error codes",
        (
            "3, 5, 6, 9, 13, 56, 74, 100, 103: retried with fresh metadata",
            "2, 7, 19, 20, 89: retried",
            "10 MESSAGE_TOO_LARGE: split without using up a retry",
            "-1, 8, 17, 18, 21, 29, 32, 42, 43, 76, 87: the batch fails, a transaction can only be aborted",
            "31, 35, 49, 53, 90: fatal",
            "45 OUT_OF_ORDER_SEQUENCE_NUMBER: retried in turn, then a new epoch; a transaction can only be aborted",
            "46 DUPLICATE_SEQUENCE_NUMBER: success without an offset",
            "47 INVALID_PRODUCER_EPOCH: abortable on Produce, fenced on coordinators' APIs",
            "48 INVALID_TXN_STATE: abortable on Produce, fatal on coordinators' APIs",
            "49 INVALID_PRODUCER_ID_MAPPING: fatal; in a roll-forward it proves nothing",
            "59 UNKNOWN_PRODUCER_ID: a new epoch; a transaction can only be aborted",
            "14, 15, 16, 51 from a coordinator: retried, or found again",
            "120 TRANSACTION_ABORTABLE",
            "no retry after the delivery timeout or the last attempt",
        ),
    ),
    "schema registry": Area(
        "Schema registry",
        (
            "down, slow, silent, a host that does not exist",
            "several URLs, the first one dead",
            "408, 429 with Retry-After, 500, 502, 503, 504",
            "401, 403, 404, 407, 409, 413, 422",
            "redirect loop",
            "HTML, truncated JSON, wrong types, a huge answer, no HTTP",
            "deleted subject, version or schema; unknown id",
            "rules that would encrypt",
            "references in a circle, without end, or two of one name",
            "a registry, proxy or token endpoint that repeats a password",
            "a wrong certificate, another host's, a proxy that refuses",
        ),
    ),
}

ONLY_IN_ALL: Final[Mapping[str, str]] = {
    "containers of YARN killed: an executor's and the application master's": "YARN; killed workers and drivers stay",
    "SIGKILL of an executor": "another Java to start; its death is that of its workers, which stays",
    "SIGKILL of processes that write dead letters": "a minute; the kills that stay lose rows with and without letters alike",
    "a stage that is run again": "30 s; the replayed batch with other partitioning stays",
    "executors and workers of a cluster lost and added": "two minutes and a standalone cluster; a killed worker stays",
    "the driver of a batch job dies for good": "a driver's start each; recover and abort of what a job left stay in tests/cli",
    "speculation": "a standalone cluster; a late transaction of a killed task stays",
}
"""The lines that only `make test-all` makes happen, and why."""
