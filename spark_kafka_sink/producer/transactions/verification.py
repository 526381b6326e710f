"""Checks which brokers support transactions that other processes end.

The committing process also aborts abandoned transactions by producer id and epoch. With transaction version 1 the epoch does not
change, so only verification (KIP-890, part 1) fences a task that is still writing: before a leader stores the first record of a
transaction, it asks the coordinator whether the partition belongs to it. Without it the record is stored behind the abort marker,
and the partition's last stable offset never moves again.

ApiVersions has version ranges, not releases. Leaders verify since 3.6, where AddPartitionsToTxn v4 became stable (KAFKA-14561),
but exactly-once requires EndTxn v4 of 3.8 (KAFKA-16314). In 3.6 and 3.7 a coordinator can leave a transaction in PrepareCommit or
PrepareAbort (KAFKA-16352), leaders can fail to verify in a rolling upgrade (KAFKA-16992), and the upgrade notes of 3.6 advise
switching verification off (KAFKA-15653).
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.transactions import END_TXN

_END_TXN_OF_3_8: Final = 4


def too_old(broker: NodeApiVersions) -> UnsupportedVersionError | None:
    """Returns why a broker does not support exactly-once; None if it does."""
    versions = broker.ranges.get(END_TXN.key)
    if versions is not None and versions[1] >= _END_TXN_OF_3_8:
        return None
    said = (
        "it does not support EndTxn" if versions is None else f"it supports EndTxn only up to v{versions[1]}, but v4 is required"
    )
    return UnsupportedVersionError(
        f"exactly-once requires Kafka 3.8 or newer on every broker, but {broker.label} is older: {said}. Upgrade the"
        " brokers, or set delivery.guarantee=at-least-once",
        api=END_TXN.name,
        broker=broker.label,
    )


def switched_off(label: str) -> UnsupportedVersionError:
    """Returns the error for a broker whose leaders could verify but do not."""
    return UnsupportedVersionError(
        f"exactly-once requires transaction.partition.verification.enable=true on every broker, but {label} has it"
        " switched off: set it to true, or set delivery.guarantee=at-least-once",
        broker=label,
    )
