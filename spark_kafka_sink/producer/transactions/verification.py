"""Checks which brokers support exactly-once: transactions that other processes end.

The committing process also aborts abandoned transactions by producer id and epoch. With transaction version 1 the epoch does not
change, so only verification (KIP-890, part 1) fences a task that is still writing: before a leader stores the first record of a
transaction, it asks the coordinator whether the partition belongs to it. Without it the record is stored behind the abort marker,
and the partition's last stable offset never moves again.

ApiVersions has version ranges, not releases. Leaders verify since 3.6, where AddPartitionsToTxn v4 became stable (KAFKA-14561),
but exactly-once requires EndTxn v4 of 3.8 (KAFKA-16314). In 3.6 and 3.7 a coordinator can leave a transaction in PrepareCommit or
PrepareAbort (KAFKA-16352), leaders can fail to verify in a rolling upgrade (KAFKA-16992), and the upgrade notes of 3.6 advise
switching verification off (KAFKA-15653).

Fencing the task with InitProducerId instead would need no verification, but the list of open transactions may be outdated: it
would abort the next transaction of an id in use. Before 3.0 nothing proves how a transaction has ended, because there is no
DescribeTransactions. So the limit is the same for streams, batch jobs and `publish`.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.api import ApiKey

_NEEDED: Final = (
    (ApiKey.END_TXN, 4),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0),  # proves how a transaction has ended
    (ApiKey.FIND_COORDINATOR, 4),  # finds the coordinators of many transactions at once
    (ApiKey.LIST_OFFSETS, 5),  # a new leader says that it does not know the end of the commit log yet (KIP-207)
)
"""The version that exactly-once requires of an API. Services may have some of them and not others."""


def too_old(broker: NodeApiVersions) -> UnsupportedVersionError | None:
    """Returns why a broker does not support exactly-once; None if it does."""
    for key, version in _NEEDED:
        newest = broker.newest(key)
        if newest < version:
            name = key.kafka_name
            said = (
                f"supports {name} only up to v{newest}, but v{version} is required" if newest >= 0 else f"does not support {name}"
            )
            if key is ApiKey.END_TXN:  # otherwise it is new enough, and a service leaves an API out
                said = f"has the APIs of Kafka {broker.release}: it {said}"
            return UnsupportedVersionError(
                f"exactly-once requires Kafka 3.8 or newer on every broker, but {broker.label} {said}. Upgrade the brokers, or"
                " set delivery.guarantee=at-least-once",
                api=key.name,
                broker=broker.label,
            )
    return None


def switched_off(label: str) -> UnsupportedVersionError:
    """Returns the error for a broker whose leaders could verify but do not."""
    return UnsupportedVersionError(
        f"exactly-once requires transaction.partition.verification.enable=true on every broker, but {label} has it"
        " switched off: set it to true, or set delivery.guarantee=at-least-once",
        broker=label,
    )
