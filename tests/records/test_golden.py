"""Batches are those of Kafka's own Java client: byte for byte without compression, record for record with it, both ways."""

from __future__ import annotations

import numpy as np
import pytest

from spark_kafka_sink.records.batch_header import HEADER_SIZE
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.records.small_batches import decode_batches
from tests.every import every
from tests.records.golden_batches import BATCHES, GoldenCase, golden_cases, parse_cases, read_with_java, run_java
from tests.records.making import batch_of, encode_all

CASES = golden_cases()
CONSECUTIVE = [case for case in CASES if case.offsets_are_consecutive]

every_case = every("case", CASES)
LEVELS = {Codec.NONE: (0,), Codec.GZIP: (-1, 1, 9), Codec.SNAPPY: (0,), Codec.LZ4: (-5, -1, 0, 9), Codec.ZSTD: (-5, 1, 19)}


def ours(case: GoldenCase, codec: Codec, level: int = 0) -> bytes:
    return batch_of(
        encode_all(case.records),
        np.array([record.timestamp for record in case.records]),
        codec,
        level,
        producer_id=case.producer_id,
        producer_epoch=case.producer_epoch,
        base_sequence=case.base_sequence,
        transactional=case.transactional,
    )


@every_case
def test_the_records_are_javas_byte_for_byte(case: GoldenCase) -> None:
    assert bytes(encode_all(case.records).data).hex() == case.batches[Codec.NONE][HEADER_SIZE:].hex()


@every("case", CONSECUTIVE)
def test_the_whole_batch_is_javas_byte_for_byte(case: GoldenCase) -> None:
    assert ours(case, Codec.NONE).hex() == case.batches[Codec.NONE].hex()


@every_case
@every("codec", Codec)
def test_a_batch_of_java_reads_back(case: GoldenCase, codec: Codec) -> None:
    (batch,) = decode_batches(case.batches[codec])
    assert batch.codec == codec
    assert batch.records() == case.records
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
        case.producer_id,
        case.producer_epoch,
        case.base_sequence,
    )
    assert (batch.is_transactional, batch.is_control, batch.is_log_append_time) == (case.transactional, False, False)
    assert batch.last_offset == case.records[-1].offset
    assert batch.max_timestamp == max(record.timestamp for record in case.records)


def several_blocks() -> GoldenCase:
    """3 MB: more than one block under every codec."""
    records = [Record(i, 1000 + i, b"key %d" % i, b"value %d " % i * 100) for i in range(3000)]
    return GoldenCase("several blocks", -1, -1, -1, False, records)


@pytest.mark.whole("9 s of Java; producer/test_producer.py has each codec on real Kafka")
@pytest.mark.java
def test_java_reads_our_batches_under_every_codec_and_level() -> None:
    made = [(case, codec, level) for case in [*CASES, several_blocks()] for codec in Codec for level in LEVELS[codec]]
    read = read_with_java(ours(case, codec, level) for case, codec, level in made)
    for (case, codec, level), records in zip(made, read, strict=True):
        assert records == case.records, f"{case.name}, {codec.name} level {level}"


@pytest.mark.whole("starts Java, whose golden file changes with its release only; the others here compare with that file")
@pytest.mark.java
def test_the_golden_file_is_what_java_prints() -> None:
    # Compressed bytes depend on the libraries that Java finds; the others on Kafka alone.
    printed, kept = parse_cases(run_java("write")), parse_cases(BATCHES.read_text())
    assert [(case.name, case.records, case.batches[Codec.NONE]) for case in printed] == [
        (case.name, case.records, case.batches[Codec.NONE]) for case in kept
    ]
