"""Transaction markers: the one record of a control batch, as Kafka's ControlRecordType and EndTransactionMarker write it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a producer's transaction, to be written to a partition that it wrote to."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int

    def key(self) -> bytes:
        return _KEY.pack(0, _COMMIT if self.committed else _ABORT)

    def value(self) -> bytes:
        return _VALUE.pack(0, self.coordinator_epoch)


def parse_marker(producer_id: int, producer_epoch: int, key: bytes | None, value: bytes | None) -> EndTransactionMarker | None:
    """From a control record; None when it is of another kind, or of a version that is not known."""
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    version, kind = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0 or value_version < 0 or kind not in (_ABORT, _COMMIT):
        return None
    return EndTransactionMarker(producer_id, producer_epoch, kind == _COMMIT, coordinator_epoch)
