"""Rows with numbers, in files that a stream reads some at a time, and what a topic must hold of them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.exactly_once.driver_program import Query
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed

EPOCH_S = 1_700_000_000  # of the files' times: only their order counts


@dataclass(frozen=True)
class NumberedRows:
    """`batches` micro-batches of `tasks` files with `rows` rows each, in text files below `folder`.

    A row is its number. Its key is the number's remainder by `keys`, which is a multiple of `tasks`, so that all rows of a key
    are in one file of a batch: the source keeps their order, however files and batches are spread over tasks.
    """

    folder: Path
    batches: int
    tasks: int = 4
    rows: int = 100

    @property
    def keys(self) -> int:
        return 2 * self.tasks

    @property
    def total(self) -> int:
        return self.batches * self.tasks * self.rows

    def write(self) -> NumberedRows:
        self.folder.mkdir(parents=True)
        for batch in range(self.batches):
            self.write_batch(batch)
        return self

    def write_batch(self, batch: int) -> None:
        """A stream may read meanwhile: it sees whole files."""
        for task in range(self.tasks):
            self._write_file(batch, task)

    def _write_file(self, batch: int, task: int) -> None:
        name = f"batch-{batch:05}-{task}.txt"
        path = self.folder / f".{name}"  # Spark does not see it
        first = batch * self.rows
        path.write_text("".join(f"{row * self.tasks + task}\n" for row in range(first, first + self.rows)))
        when = EPOCH_S + batch * self.tasks + task  # Spark's file source takes the oldest first
        os.utime(path, (when, when))
        path.rename(self.folder / name)

    def check(self, found: Iterable[Witnessed]) -> None:
        """AssertionError unless each row is there once, under its key, and those of a key are in order."""
        by_key: dict[int, list[int]] = defaultdict(list)
        for record in found:
            key, number = int(record.key or b"-1"), int(record.value or b"-1")
            assert key == number % self.keys, f"row {number} stands under the key {key}"
            by_key[key].append(number)
        problems = [text for key in range(self.keys) for text in _problems(by_key[key], range(key, self.total, self.keys), key)]
        assert not problems, "\n".join(problems)


def _problems(found: list[int], due: range, key: int) -> list[str]:
    if found == list(due):
        return []
    seen = set(found)
    lost = [number for number in due if number not in seen]
    texts = [f"key {key}: {len(lost)} rows lost, the first are {lost[:5]}"] if lost else []
    if len(seen) < len(found):
        twice = sorted({number for number in found if found.count(number) > 1})
        texts.append(f"key {key}: {len(found) - len(seen)} rows twice, the first are {twice[:5]}")
    if found != sorted(found):
        place = next(at for at in range(1, len(found)) if found[at] < found[at - 1])
        texts.append(f"key {key}: out of order around {found[max(0, place - 3) : place + 3]}")
    return texts or [f"key {key}: rows that nobody sent: {sorted(seen - set(due))[:5]}"]


# Short enough that a flush takes several requests to each broker.
BATCH_SIZE = 512


def moved(kafka: Kafka, topic: str, folder: Path, batches: int, **options: str) -> tuple[NumberedRows, Query]:
    """folder: takes the rows and the checkpoint. options: of the sink."""
    rows = NumberedRows(folder / "rows", batches).write()
    sink = {
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.batch.size": str(BATCH_SIZE),
    }
    return rows, Query(rows.folder, folder / "checkpoint", rows.tasks, rows.keys, sink | options)
