"""The cost benchmark: what its cells cover, the bytes of its rows, the time it takes, and what it makes of its figures."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.cost.__main__ import main
from benchmarks.cost.cells import BY_NAME, CELLS, FILES, FILES_OF, Format, Payload
from benchmarks.cost.contenders import CONTENDERS
from benchmarks.cost.costs import CostSample, costs, jvm_ratio, over_floor, samples_of
from benchmarks.cost.page import FILE, HEADLINE, LABELS, README_CELLS, quoted, readme
from benchmarks.cost.rows import AVRO_FIELDS, HEADERS, table, write_rows
from benchmarks.pictures import kept
from benchmarks.results import CEILING, CONFLUENT, JVM, JVM_TUNED, KAFKA_PYTHON, PARQUET, SINK, Run

SIZES = (100, 1024, 10 * 1024)
CELL = "100B-json-lz4-8"


def sample(contender: str, jvm_us: float, python_us: float, cell: str = CELL, rows_per_s: float = 1e6) -> CostSample:
    rows = 1_000_000
    return CostSample(cell, contender, rows, rows / rows_per_s, jvm_us, python_us, planners_s=0.2)


# All contenders of each cell; medians of three rounds.
SAMPLES = [
    sample(contender, jvm_us, python_us, cell.name)
    for cell in CELLS
    for contender, jvm_us in zip(cell.contenders, (6, 4.5, 2, 8, 9, 1, 0.5), strict=False)
    for python_us in (1.0, 3.0, 2.0)
]


# Cells


def test_the_cells_cover_sizes_formats_partitions_headers_and_exactly_once() -> None:
    assert {(cell.payload.value_bytes, cell.payload.format) for cell in CELLS} == {
        (size, each) for size in SIZES for each in Format
    }
    assert {cell.partitions for cell in CELLS} == {8, 200, 1000}
    assert any(cell.payload.headers for cell in CELLS)
    assert any(cell.exactly_once for cell in CELLS)
    assert len(BY_NAME) == len(CELLS)


def test_every_peer_takes_part_and_every_cell_has_both_limits() -> None:
    assert {name for cell in CELLS for name in cell.contenders} == set(CONTENDERS) == set(LABELS)
    assert all({JVM, JVM_TUNED, cell.ours, CEILING, PARQUET} <= set(cell.contenders) for cell in CELLS)
    assert {CONFLUENT, KAFKA_PYTHON} == set(FILES_OF)


# Time


@pytest.mark.parametrize("part", [["--quick"], ["--only", CELL], ["--contenders", SINK]])
def test_the_docs_are_not_made_from_a_part_of_the_cells(part: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--keep", *part])
    assert "--keep needs all cells" in capsys.readouterr().err


# Rows


@pytest.mark.parametrize("size", SIZES)
def test_json_values_are_objects_of_the_exact_size(size: int) -> None:
    values = table(Payload(size), 50, seed=1)["value"].to_pylist()

    assert {len(value) for value in values} == {size}
    assert len({json.loads(value)["id"] for value in values}) == 50
    assert all(isinstance(json.loads(value)["amount"], float) for value in values)


@pytest.mark.parametrize("size", SIZES)
def test_avro_values_are_records_of_the_exact_size(size: int) -> None:
    values = table(Payload(size, Format.AVRO), 50, seed=1)["value"].to_pylist()
    events = [decoded(value) for value in values]

    assert {len(value) for value in values} == {size}
    assert len({event["id"] for event in events}) == 50
    assert all(list(event) == [field["name"] for field in AVRO_FIELDS] for event in events)
    assert all(2**27 <= event["id"] < 10**9 and 1_700_000_000 <= event["at"] < 1_800_000_000 for event in events)
    assert all(100 <= event["amount"] < 1000 and event["user"].isdigit() for event in events)
    assert all(field.isdigit() for event in events for field in event["fields"])


def decoded(record: bytes) -> dict[str, Any]:
    """Decodes an event by Avro's specification, without a library, and checks that nothing follows it."""
    rest: Iterator[int] = iter(record)

    def long() -> int:
        number = shift = 0
        for byte in rest:
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        return number >> 1 ^ -(number & 1)

    def string() -> str:
        return bytes(next(rest) for _ in range(long())).decode()

    event: dict[str, Any] = {"id": long(), "user": string(), "at": long()}
    event["amount"] = struct.unpack("<d", bytes(next(rest) for _ in range(8)))[0]
    fields: list[str] = []
    while count := long():
        fields += [string() for _ in range(count)]
    event |= {"fields": fields, "note": string()}
    assert list(rest) == []
    return event


def test_rows_with_headers_have_two_each() -> None:
    headers = table(Payload(100, headers=True), 3, seed=1)["headers"].to_pylist()

    assert [tuple(header["key"] for header in row) for row in headers] == [HEADERS] * 3
    assert len({row[0]["value"] for row in headers}) == 3
    assert {row[1]["value"] for row in headers} == {b"checkout"}


def test_files_hold_the_rows_in_equal_parts_and_the_same_ones_in_every_run(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    first, second = ([pq.read_table(path) for path in write_rows(Payload(100), 10 * FILES, folder)] for folder in folders)

    assert [part.num_rows for part in first] == [10] * FILES
    assert first == second
    assert pa.concat_tables(first)["value"].to_numpy().size == np.unique(pa.concat_tables(first)["value"].to_numpy()).size


# Figures


def test_a_run_is_kept_with_the_time_of_each_kind_of_process() -> None:
    run = Run(10, 2.0, cpu_s=0.5, jvm_s=1.5, planners_s=0.25)
    assert samples_of(CELL, {SINK: [run], JVM: []}) == [CostSample(CELL, SINK, 10, 2.0, 1.5, 0.5, 0.25)]


def test_costs_are_medians_of_the_runs() -> None:
    cost = costs([sample(SINK, jvm, 1.0, rows_per_s=speed) for jvm, speed in ((1.0, 3e6), (9.0, 1e6), (2.0, 2e6))])[CELL][SINK]

    assert (cost.runs, cost.jvm, cost.python, cost.cpu) == (3, 2.0, 1.0, 3.0)
    assert (cost.low, cost.high, cost.rows_per_s) == (2.0, 10.0, 2e6)


def test_ratios_compare_with_the_jvm_sink_and_with_the_floor() -> None:
    cell = costs([sample(SINK, 1.0, 1.0), sample(JVM, 5.0, 0.0), sample(JVM_TUNED, 3.0, 0.0), sample(CEILING, 1.0, 0.6)])[CELL]

    assert jvm_ratio(cell, SINK) == 2.5
    assert jvm_ratio(cell, SINK, JVM_TUNED) == 1.5
    assert over_floor(cell, SINK) == pytest.approx(0.25)


# The page and its pictures


def test_the_figures_of_the_docs_are_those_of_all_cells() -> None:
    measured_on, samples = kept(FILE, CostSample)

    assert re.match(r"\d{4}-\d\d-\d\d; .* cores", measured_on)
    assert {(one.cell, one.contender) for one in samples} == {(cell.name, name) for cell in CELLS for name in cell.contenders}


def test_the_readme_quotes_the_figures() -> None:
    item = quoted(costs(SAMPLES))

    assert "Spark's own sink takes 2.0 times the executor CPU of this one, and 2.0 times for rows of 1 KB" in " ".join(
        item.split()
    )
    assert "confluent-kafka takes 2.5 and 2.5 times as much" in " ".join(item.split())
    assert max(map(len, item.splitlines())) <= 100
    assert len(item.splitlines()) <= 4  # the README has no room for more
    assert quoted(costs(kept(FILE, CostSample)[1])) in readme()
    assert f"docs/pictures/{HEADLINE}" in readme()
    assert set(README_CELLS) <= set(BY_NAME)
