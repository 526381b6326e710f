"""Which brokers can keep a transaction whole that other processes end.

The process that commits also aborts what nobody will commit, by producer id and epoch. With transactions of version 1 that leaves
the epoch as it is, so a task that is still writing is fenced by nothing but verification (KIP-890, part 1): before a leader
stores the first record of a transaction, it asks the coordinator whether the partition belongs to it. Without that the record is
stored behind the marker of the abort, and the last stable offset of the partition never moves again.

ApiVersions has ranges, no release. Leaders verify since 3.6, where AddPartitionsToTxn v4 became stable (KAFKA-14561), but
exactly-once asks for EndTxn v4, which came with 3.8 (KAFKA-16314). In 3.6 and 3.7 a coordinator can leave a transaction in
PrepareCommit or PrepareAbort (KAFKA-16352), leaders can fail to verify in a rolling upgrade (KAFKA-16992), and the upgrade notes
of 3.6 advise to switch verification off (KAFKA-15653).
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.transactions import END_TXN

_END_TXN_OF_3_8: Final = 4


def too_old(broker: NodeApiVersions) -> UnsupportedVersionError | None:
    """Returns why exactly-once does not work with a broker, None if it does."""
    versions = broker.ranges.get(END_TXN.key)
    if versions is not None and versions[1] >= _END_TXN_OF_3_8:
        return None
    said = "it does not know EndTxn" if versions is None else f"its EndTxn ends at v{versions[1]}, v4 is needed"
    return UnsupportedVersionError(
        f"exactly-once needs Kafka 3.8 or newer on every broker, and {broker.label} is older: {said}. Upgrade the brokers, or use"
        " delivery.guarantee=at-least-once",
        api=END_TXN.name,
        broker=broker.label,
    )


def switched_off(label: str) -> UnsupportedVersionError:
    """Returns the error for a broker whose leaders do not verify, although they could."""
    return UnsupportedVersionError(
        f"exactly-once needs transaction.partition.verification.enable=true on every broker, and {label} has it switched off:"
        " set it to true, or use delivery.guarantee=at-least-once",
        broker=label,
    )
