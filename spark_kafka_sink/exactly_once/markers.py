"""Looks into topics for the markers of transactions whose coordinators no longer know how they ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.topics import metadata_error
from spark_kafka_sink.errors import BrokerError, DeadlineError, KafkaSinkError
from spark_kafka_sink.exactly_once.log_reader import ABORT, COMMIT
from spark_kafka_sink.exactly_once.partition_reader import PartitionReader
from spark_kafka_sink.exactly_once.proof import Outcome, Proof, outcome_of_markers, proof_of_marker
from spark_kafka_sink.producer.transactions.handle import TransactionHandle, partition_numbers

_BEFORE_MS: Final = 300_000
"""How long before `prepared` was written a transaction may have timed out: the most that a commit takes, and clocks differ."""
_MAX_NAMED: Final = 10


def look_for_markers(
    client: ClusterClient, handles: Iterable[TransactionHandle], prepared_ms: int, deadline: float
) -> tuple[dict[TransactionHandle, Outcome], list[str]]:
    """Returns the outcome of each transaction, and why any is unknown.

    It reads each partition from the time on at which the batch was prepared, until it has the markers.

    Args:
        client: of the cluster.
        handles: the transactions.
        prepared_ms: when their `prepared` record was written, in ms since the epoch.
        deadline: on time.monotonic's clock.
    """
    proofs: dict[TransactionHandle, list[Proof]] = {each: [] for each in handles}
    by_partition: dict[tuple[str, int], list[TransactionHandle]] = {}
    for each in proofs:
        for topic, numbers in each.partitions:
            for number in partition_numbers(numbers):
                by_partition.setdefault((topic, number), []).append(each)
    reasons, is_late = list[str](), False
    for (topic, number), some in sorted(by_partition.items()):
        found: dict[TransactionHandle, Proof] = {}
        try:
            if not is_late:
                _read(client, topic, number, some, prepared_ms - _BEFORE_MS, deadline, found)
        except DeadlineError as error:
            is_late = True
            reasons.append(f"the time was too short to look for markers: raise --timeout ({error.message})")
        except KafkaSinkError as error:
            reasons.append(error.message)
        else:
            if not is_late and (lacking := [each.transactional_id for each in some if each not in found]):
                since = datetime.fromtimestamp(prepared_ms / 1000, UTC).isoformat(timespec="seconds")
                text = f"topic {topic}, partition {number} has no marker of {lacking[0]} since {since}: it may have been deleted"
                reasons.append(text)
        for each in some:
            proofs[each].append(found.get(each, Proof.UNKNOWN))
    more = [f"and {len(reasons) - _MAX_NAMED} more"] if len(reasons) > _MAX_NAMED else []
    return {each: outcome_of_markers(some) for each, some in proofs.items()}, reasons[:_MAX_NAMED] + more


def _read(
    client: ClusterClient,
    topic: str,
    number: int,
    handles: list[TransactionHandle],
    since_ms: int,
    deadline: float,
    found: dict[TransactionHandle, Proof],
) -> None:
    """Adds what the markers in one partition prove to `found`. The first proof counts, as it does for consumers."""
    count, code = client.topic(topic, deadline)
    if number >= count:
        raise (
            metadata_error(client, topic, code) if code else BrokerError(f"topic {topic} has no partition {number}", topic=topic)
        )
    for batch in PartitionReader(client, topic, number).markers(since_ms, deadline):
        marker = next(batch.each_record(), None)  # None where compaction has removed it
        if marker is None or marker.key not in (ABORT, COMMIT):
            continue
        for each in handles:
            proof = proof_of_marker(each, batch.producer_id, batch.producer_epoch, committed=marker.key == COMMIT)
            if proof is not Proof.UNKNOWN:
                found.setdefault(each, proof)
        if len(found) == len(handles):
            return
