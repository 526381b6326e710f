"""The benchmark of codecs: every contender compresses the same records."""

from __future__ import annotations

import pytest

from benchmarks.compression import CONTENDERS, DATA, JAVA, LIBRDKAFKA, OURS, Case, batch, markdown, measured


@pytest.mark.java
def test_contenders_get_the_same_records_and_are_told_apart_by_their_compressor_alone() -> None:
    case = Case("JSON 100 B", 16 * 1024, "lz4", 0)
    (found,) = measured([case], CONTENDERS, rounds=1).values()
    assert all(each.seconds > 0 for each in found.values())
    assert found[JAVA].size == found[OURS].size
    # Its batches begin and end elsewhere, and requests have headers.
    assert found[LIBRDKAFKA].size == pytest.approx(found[OURS].size, rel=0.03)


@pytest.mark.parametrize("data", DATA)
def test_a_batch_has_the_asked_size_and_is_the_same_every_time(data: str) -> None:
    made = batch(data, 20_000)
    batch.cache_clear()
    assert batch(data, 20_000) == made
    assert len(made) == 20_000


def test_a_contender_without_that_level_has_an_empty_cell() -> None:
    results = measured([Case("Avro 100 B", 16 * 1024, "lz4", -1)], [OURS, LIBRDKAFKA], rounds=1)
    row = markdown(results, [OURS, LIBRDKAFKA]).splitlines()[-1]
    assert row.startswith("| Avro 100 B | lz4 -1 | ")
    assert row.endswith(" |  |  |")
