"""A task's open transaction as JSON and back: between processes that share no pickles, from the outside of which nothing is
trusted."""

from __future__ import annotations

import json

from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.producer.transactions.handle import TransactionHandle


def share_to_json(share: TaskTransaction) -> str:
    return json.dumps([_of_transaction(share.transaction)] if share.transaction is not None else [])


def _of_transaction(each: PreparedTransaction) -> list[object]:
    handle = each.handle
    named = [handle.transactional_id, handle.producer_id, handle.epoch, handle.transaction_version, handle.records]
    return [*named, handle.partitions, each.spark_partition, each.checksum]


def share_from_json(text: str, batch: MicroBatch) -> TaskTransaction:
    """Raises ValueError or TypeError when the text is not what `share_to_json` makes."""
    transactions = [_transaction(*each) for each in json.loads(text)]
    return TaskTransaction(batch, transactions[0] if transactions else None)


def _transaction(
    name: str, producer_id: int, epoch: int, version: int, records: int, where: list[list[str]], partition: int, checksum: int
) -> PreparedTransaction:
    partitions = tuple((str(topic), str(numbers)) for topic, numbers in where)
    handle = TransactionHandle(str(name), int(producer_id), int(epoch), int(version), int(records), partitions)
    return PreparedTransaction(handle, int(partition), int(checksum))
