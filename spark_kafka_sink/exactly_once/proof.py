"""What a description of a transactional id proves of one of its transactions. Pure.

What a transaction leaves behind at its coordinator, if it had the epoch e (TransactionMetadata of Kafka 4.1, and measured):

    ended by              version 1                 version 2
    EndTxn(commit)        PrepareCommit at e        PrepareCommit at e + 1
                          CompleteCommit at e       CompleteCommit at e + 1
    EndTxn(abort)         ...Abort at e             ...Abort at e + 1
    its time-out          ...Abort at e + 1         ...Abort at e + 1
    InitProducerId        the same, and then Empty one epoch later

With version 2 the last epoch of a producer id (32,766) leaves a Complete... state of another producer id, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from spark_kafka_sink.exactly_once.evidence import TransactionDescription
from spark_kafka_sink.producer.transactions.handle import TransactionHandle


class Proof(StrEnum):
    """unknown: the description is of something else, or could be."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


P = Proof

# By state: what it proves at the transaction's own epoch, and at the next one.
_VERSION_1: Final[Mapping[str, tuple[Proof, Proof]]] = {
    "Ongoing": (P.OPEN, P.UNKNOWN),
    "PrepareCommit": (P.COMMITTED, P.UNKNOWN),
    "CompleteCommit": (P.COMMITTED, P.UNKNOWN),
    "PrepareAbort": (P.ABORTED, P.ABORTED),
    "CompleteAbort": (P.ABORTED, P.ABORTED),
    "PrepareEpochFence": (P.UNKNOWN, P.ABORTED),
}
_VERSION_2: Final[Mapping[str, tuple[Proof, Proof]]] = {
    "Ongoing": (P.OPEN, P.UNKNOWN),
    "PrepareCommit": (P.UNKNOWN, P.COMMITTED),
    "CompleteCommit": (P.UNKNOWN, P.COMMITTED),
    "PrepareAbort": (P.UNKNOWN, P.ABORTED),
    "CompleteAbort": (P.UNKNOWN, P.ABORTED),
    "PrepareEpochFence": (P.UNKNOWN, P.ABORTED),
}
_NOTHING: Final = (P.UNKNOWN, P.UNKNOWN)


def proof_of(handle: TransactionHandle, description: TransactionDescription | None) -> Proof:
    """What became of the transaction, by what its coordinator says now; None: it knows nothing of the id, and nothing is proved.

    With version 1 an abort one epoch later proves a time-out only where the id was not initialised again: what began after a
    committed transaction, and was aborted, looks the same. So the caller must know that it was not (the commit log still says
    `prepared`, and ids are used again only after `complete`). With version 2 every epoch has one end, which proves itself.
    """
    if description is None or description.producer_id != handle.producer_id:
        return Proof.UNKNOWN
    table = _VERSION_2 if handle.transaction_version >= 2 else _VERSION_1
    later = description.epoch - handle.epoch
    return table.get(description.state, _NOTHING)[later] if later in (0, 1) else Proof.UNKNOWN
