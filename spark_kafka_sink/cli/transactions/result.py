"""The output of the commands, as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import click

from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

COMMAND: Final = "spark-kafka-sink transactions"


def written_again(query_id: str) -> str:
    """Returns what to do if no row of a batch is visible."""
    return "run the job again" if is_job(query_id) else "restart the query to write the batch again"


def how_to_resolve(query_id: str, batch: int) -> str:
    """Returns the options of `resolve`. Those that lose nothing come first."""
    means = "--accept-loss" if is_job(query_id) else "--replay (or --accept-loss)"
    return f"resolve --query {query_id} --batch {batch} {means}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command for one query or job.

    Attributes:
        batch: the batch, or None if it is not known.
        done: whether the command succeeded.
        transactions: the transactions that the text is about, each with its state.
    """

    query_id: str
    batch: int | None
    done: bool
    text: str
    transactions: tuple[tuple[TransactionHandle, str], ...] = ()

    def show(self, *, as_json: bool) -> None:
        """Prints a success to stdout and a failure to stderr. JSON always goes to stdout."""
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
    rows = [(each.transactional_id, word, rows_text(each), partitions_text(each.partitions)) for each, word in transactions]
    return text_table(("TRANSACTION", "STATE", "ROWS", "PARTITIONS"), rows)


def rows_of(handle: TransactionHandle) -> int | None:
    """Returns None if only coordinators know the transaction, because they do not count rows. No transaction has 0 rows."""
    return handle.records or None


def rows_text(handle: TransactionHandle) -> str:
    return "?" if (rows := rows_of(handle)) is None else f"{rows:,}"


def handle_json(handle: TransactionHandle) -> dict[str, object]:
    return {
        "transactional_id": handle.transactional_id,
        "producer_id": handle.producer_id,
        "epoch": handle.epoch,
        "rows": rows_of(handle),
        "partitions": dict(handle.partitions),
    }


# Text


def text_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns text in columns separated by two spaces, without trailing spaces."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def age(ms: int) -> str:
    """Returns `12 s`, `3 min`, `5 h` or `2 days`."""
    seconds = max(0, ms) // 1000
    for unit, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


def partitions_text(partitions: Iterable[tuple[str, str]]) -> str:
    """Returns `events 0-3,7 other 1`."""
    return " ".join(f"{topic} {numbers}" for topic, numbers in partitions) or "-"
