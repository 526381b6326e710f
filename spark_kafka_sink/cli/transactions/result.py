"""What came of one query or job, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import click

from spark_kafka_sink.cli.transactions.text_table import partitions_text, text_table
from spark_kafka_sink.producer.transactions.handle import TransactionHandle


@dataclass(frozen=True, slots=True)
class Result:
    """done: what was asked for. batch: None where it is not known. transactions: that the text speaks of, each with a word."""

    query_id: str
    batch: int | None
    done: bool
    text: str
    transactions: tuple[tuple[TransactionHandle, str], ...] = ()

    def show(self, *, as_json: bool) -> None:
        """To stdout what is done, to stderr what is not; as JSON all to stdout."""
        if as_json:
            click.echo(json.dumps(self._json()))
            return
        where = self.query_id if self.batch is None else f"{self.query_id}, batch {self.batch}"
        click.echo(f"{where}: {self.text}", err=not self.done)
        if self.transactions:
            click.echo(transactions_text(self.transactions), err=not self.done)

    def _json(self) -> dict[str, object]:
        transactions = [{**handle_json(each), "outcome": word} for each, word in self.transactions]
        return {
            "query_id": self.query_id,
            "batch": self.batch,
            "done": self.done,
            "text": self.text,
            "transactions": transactions,
        }


def transactions_text(transactions: Iterable[tuple[TransactionHandle, str]]) -> str:
    rows = [
        (each.transactional_id, word, rows_text(rows_of(each)), partitions_text(each.partitions)) for each, word in transactions
    ]
    return text_table(("TRANSACTION", "STATE", "ROWS", "PARTITIONS"), rows)


def rows_of(handle: TransactionHandle) -> int | None:
    """None where only coordinators know of it, who count none. One without rows is never left open."""
    return handle.records or None


def rows_text(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"


def handle_json(handle: TransactionHandle) -> dict[str, object]:
    return {
        "transactional_id": handle.transactional_id,
        "producer_id": handle.producer_id,
        "epoch": handle.epoch,
        "rows": rows_of(handle),
        "partitions": dict(handle.partitions),
    }
