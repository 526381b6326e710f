"""The benchmark of codecs: every contender compresses the same records."""

from __future__ import annotations

import pytest

from benchmarks.compression import CONTENDERS, JAVA, LIBRDKAFKA, OURS, Case, measured


@pytest.mark.java
def test_contenders_get_the_same_records_and_are_told_apart_by_their_compressor_alone() -> None:
    case = Case("JSON 100 B", 16 * 1024, "lz4", 0)
    (found,) = measured([case], CONTENDERS, rounds=1).values()
    assert all(each.seconds > 0 for each in found.values())
    assert found[JAVA].size == found[OURS].size
    # Its batches begin and end elsewhere, and requests have headers.
    assert found[LIBRDKAFKA].size == pytest.approx(found[OURS].size, rel=0.03)
