"""What other versions keep in a commit log: kept/0.1.json is what 0.1 writes, kept/format-1.json what a version before it wrote.

They never change. A release that writes something else gets its own file beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.commit_log import CommitLog, partition_of
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction, encode_key
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.records.small_batches import NewRecord
from tests.exactly_once.opened import soon, writer

_FOLDER: Final = Path(__file__).parent / "kept"
KEPT: Final = json.loads((_FOLDER / "0.1.json").read_text(encoding="utf-8"))
FORMAT_1: Final = (_FOLDER / "format-1.json").read_bytes().strip()
VERSIONS: Final = {"before 0.1": json.loads(FORMAT_1), "0.1": json.loads(KEPT["commit log"]["prepared"])}


def log_as(
    version: str,
    client: ClusterClient,
    settings: CommitLogSettings,
    ids: TransactionalIds,
    batch: int,
    state: str,
    own: Iterable[PreparedTransaction],
) -> None:
    """Writes a batch of a query to the commit log as another version did, with the fields of its record."""
    kept: dict[str, Any] = VERSIONS[version]
    transactions: list[dict[str, Any]] = []
    for each in own:
        handle = each.handle
        fields: dict[str, Any] = {
            "id": handle.transactional_id,
            "pid": handle.producer_id,
            "epoch": handle.epoch,
            "rows": handle.records,
        }
        fields |= {"to": handle.partitions, "task": each.spark_partition, "sum": each.checksum}
        # Format 1 had the version of EndTxn, 4 or 5.
        fields |= {"end_txn": handle.transaction_version + 3} if kept["format"] == 1 else {"version": handle.transaction_version}
        assert fields.keys() == kept["transactions"][0].keys()
        transactions.append(fields)
    empty: dict[str, Any] = {name: [] for name, value in kept.items() if isinstance(value, list)}
    rows = sum(each["rows"] for each in transactions)
    value = kept | empty | {"query_id": ids.query_id, "batch": batch, "state": state, "rows": rows, "transactions": transactions}
    CommitLog(client, settings).ensure(soon())
    log = writer(client, settings.topic, ids.commit_log, partition=partition_of(ids.query_id, settings.partitions))
    log.append([NewRecord(encode_key(ids.query_id, 0), json.dumps(value).encode(), 0)], soon())
    log.commit(soon())
