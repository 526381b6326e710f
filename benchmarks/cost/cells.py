"""The cells of the cost benchmark, as data. Each cell varies one thing: size, format, codec, partitions, headers or guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.results import CEILING, CONFLUENT, JVM, JVM_TUNED, KAFKA_PYTHON, PARQUET, SINK, SINK_EXACTLY_ONCE


class Format(StrEnum):
    """The format of values. JSON is a string column, Avro a binary column."""

    JSON = "JSON"
    AVRO = "Avro"


@dataclass(frozen=True, slots=True)
class Payload:
    """Rows that all contenders of a cell read from Parquet files. value_bytes: of each value, exactly."""

    value_bytes: int
    format: Format = Format.JSON
    headers: bool = False

    @property
    def rows(self) -> int:
        return ROWS[self.value_bytes]

    @property
    def record_bytes(self) -> int:
        """Bytes of a record in the broker's log without compression, at most."""
        return self.value_bytes + (OVERHEAD_WITH_HEADERS if self.headers else OVERHEAD)


@dataclass(frozen=True, slots=True)
class CostCell:
    """A cell. quick: it is measured with QUICK=1, too. contenders: in the order of a round."""

    payload: Payload
    codec: str = "lz4"
    partitions: int = 8
    quick: bool = False
    contenders: tuple[str, ...] = (JVM, JVM_TUNED, SINK, CONFLUENT, KAFKA_PYTHON, CEILING, PARQUET)

    @property
    def exactly_once(self) -> bool:
        return SINK_EXACTLY_ONCE in self.contenders

    @property
    def name(self) -> str:
        payload = self.payload
        parts = [size(payload.value_bytes).replace(" ", ""), payload.format.lower(), self.codec, str(self.partitions)]
        parts += ["headers"] * payload.headers + ["exactly-once"] * self.exactly_once
        return "-".join(parts)

    @property
    def title(self) -> str:
        """Returns the cell in words, such as `1 KB JSON, lz4, 8 partitions`."""
        payload = self.payload
        parts = [f"{size(payload.value_bytes)} {payload.format}", self.codec, f"{self.partitions:,} partitions"]
        parts += ["2 headers"] * payload.headers + ["exactly once"] * self.exactly_once
        return ", ".join(parts)

    @property
    def ours(self) -> str:
        """Returns the contender that is this sink."""
        return SINK_EXACTLY_ONCE if self.exactly_once else SINK


def size(value_bytes: int) -> str:
    """Returns a number of bytes as it is written: `100 B`, `1 KB`."""
    return f"{value_bytes} B" if value_bytes < KB else f"{value_bytes // KB} KB"


KB = 1024
# Enough rows that planning a job, which takes 0.2 to 0.3 s of the JVM, hardly counts in a row.
ROWS: Mapping[int, int] = {100: 3_000_000, KB: 1_000_000, 10 * KB: 100_000}
KEY_BYTES = 10
OVERHEAD, OVERHEAD_WITH_HEADERS = KEY_BYTES + 20, KEY_BYTES + 100

# Contenders with a Python call per row write only a share of the files of a payload, or they would take most of the time.
FILES = 16
FILES_OF: Mapping[str, int] = {CONFLUENT: 4, KAFKA_PYTHON: 2}

_SMALL, _MIDDLE, _LARGE = (Payload(value_bytes) for value_bytes in ROWS)
_SMALL_AVRO, _MIDDLE_AVRO, _LARGE_AVRO = (Payload(value_bytes, Format.AVRO) for value_bytes in ROWS)
# kafka-python would take a minute for each run.
_MANY_PARTITIONS = (JVM, JVM_TUNED, SINK, CONFLUENT, CEILING, PARQUET)
_COLUMNS_ONLY = (JVM, JVM_TUNED, SINK, CEILING, PARQUET)

# Cells with the same payload follow each other, so that it is written once.
CELLS: Sequence[CostCell] = (
    CostCell(_SMALL, "none", quick=True),
    CostCell(_SMALL, quick=True),
    CostCell(_SMALL, "zstd", contenders=_COLUMNS_ONLY),
    CostCell(_SMALL, "none", 200, contenders=_MANY_PARTITIONS),
    CostCell(_SMALL, "none", 1000, contenders=_MANY_PARTITIONS, quick=True),
    CostCell(_SMALL, contenders=(JVM, JVM_TUNED, SINK, SINK_EXACTLY_ONCE, CEILING, PARQUET), quick=True),
    CostCell(Payload(100, headers=True)),
    CostCell(_SMALL_AVRO),
    CostCell(_MIDDLE, "none", contenders=_COLUMNS_ONLY),
    CostCell(_MIDDLE, quick=True),
    CostCell(_MIDDLE, "zstd", contenders=_COLUMNS_ONLY),
    CostCell(_MIDDLE_AVRO),
    CostCell(_LARGE),
    CostCell(_LARGE_AVRO),
)
BY_NAME: Mapping[str, CostCell] = {cell.name: cell for cell in CELLS}


@dataclass(frozen=True, slots=True)
class CostPlan:
    """Amount of work. seconds: after this time a cell ends at its least number of rounds. share: of the rows of a payload."""

    repeats: int
    least_repeats: int
    seconds: float
    share: float = 1.0

    def rows(self, payload: Payload) -> int:
        """Returns the number of rows of all files, which hold the same number each."""
        return max(1, round(payload.rows * self.share / FILES)) * FILES

    def seconds_of_next(self, gone_s: float, cells_left: int) -> float:
        """Returns the seconds of the next cell: an equal part of the time that is left."""
        return max(0.0, self.seconds - gone_s) / cells_left


# The limits are 45 and 10 minutes. What is left is for the start of Kafka and Spark, and for the last round.
FULL = CostPlan(repeats=7, least_repeats=3, seconds=41 * 60)
QUICK = CostPlan(repeats=3, least_repeats=1, seconds=8 * 60, share=1 / 6)
