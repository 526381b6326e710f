"""Reports of topic-partitions against a model that adds them one by one, and what they cost."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, NO_OFFSET, Key, PartitionReport, PartitionReports
from tests.examples import examples
from tests.spark.reports import partition_reports

several = st.lists(partition_reports, max_size=4)


def model(parts: Sequence[PartitionReports]) -> dict[Key, PartitionReport]:
    total: dict[Key, PartitionReport] = {}
    for part in parts:
        for key, report in part.items():
            sum_ = total.setdefault(key, PartitionReport())
            known = [each.first_offset for each in (sum_, report) if each.first_offset != NO_OFFSET]
            sum_.first_offset, sum_.last_offset = min(known, default=NO_OFFSET), max(sum_.last_offset, report.last_offset)
            sum_.records, sum_.bytes = sum_.records + report.records, sum_.bytes + report.bytes
    for topic in {topic for topic, partition in total if partition == ALL_PARTITIONS}:
        mine = [total.pop(key) for key in list(total) if key[0] == topic]
        records, size = sum(each.records for each in mine), sum(each.bytes for each in mine)
        total[topic, ALL_PARTITIONS] = PartitionReport(records, size, NO_OFFSET, NO_OFFSET)
    return total


def added(parts: Sequence[PartitionReports]) -> PartitionReports:
    total = PartitionReports()
    for part in parts:
        total.add(part)
    return total


@settings(max_examples=examples(100))
@given(several)
def test_they_add_up_as_one_by_one_in_any_order(parts: list[PartitionReports]) -> None:
    assert added([PartitionReports(), *parts]) == added(parts[::-1]) == model(parts)


@settings(max_examples=examples(100))
@given(several)
def test_what_is_added_stays_as_it_is(parts: list[PartitionReports]) -> None:
    before = [dict(part.items()) for part in deepcopy(parts)]
    added(parts)
    assert parts == before


@settings(max_examples=examples(100))
@given(partition_reports)
def test_they_come_back_from_bytes(reports: PartitionReports) -> None:
    assert pickle.loads(pickle.dumps(reports)) == reports
    assert len(reports) == len(list(reports))


def test_batches_are_counted_one_by_one_also_after_adding() -> None:
    reports = PartitionReports()
    reports.count("t", 3, 2, 20, 7, 8)
    reports.add(PartitionReports({("t", 1): PartitionReport(1, 10, 0, 0)}))
    reports.count("t", 3, 1, 10, 5, 5)
    assert reports == {("t", 1): PartitionReport(1, 10, 0, 0), ("t", 3): PartitionReport(3, 30, 5, 8)}


def test_the_topics_with_the_most_partitions_become_sums() -> None:
    parts = {("a", 0): 1, ("b", 0): 2, ("b", 1): 3, ("b", 2): 4, ("c", 0): 5, ("c", 7): 6}
    reports = PartitionReports({key: PartitionReport(count, 10 * count, 0, count - 1) for key, count in parts.items()})
    assert reports.summed(6) == reports
    assert dict(reports.summed(5)) == {
        **{key: report for key, report in reports.items() if key[0] != "b"},
        ("b", ALL_PARTITIONS): PartitionReport(9, 90),
    }
    assert {key: one.records for key, one in reports.summed(3).items()} == {("a", 0): 1, ("b", -1): 9, ("c", -1): 11}
    assert reports.summed(0) == reports.summed(3)


def test_a_topic_of_one_partition_keeps_it_however_many_topics_there_are() -> None:
    reports = PartitionReports({(f"t{number}", number): PartitionReport(1, 10, 5, 5) for number in range(20)})
    assert reports.summed(10) == reports
    reports.count("t3", 4, 2, 20, 7, 8)
    expected = {key: report for key, report in reports.items() if key[0] != "t3"} | {
        ("t3", ALL_PARTITIONS): PartitionReport(3, 30)
    }
    assert reports.summed(10) == expected


def of_1000_partitions(seed: int, topics: int = 1) -> PartitionReports:
    """Far apart: offsets up to a billion, up to 1,000 records of about 100 bytes."""
    numbers = random.Random(seed)
    reports = PartitionReports()
    for number in range(1000):
        count, first = numbers.randint(1, 1000), numbers.randint(0, 10**9)
        size = count * 100 + numbers.randint(-300, 300)
        reports.count(f"topic-{number % topics}", number, count, size, first, first + count - 1)
    return reports
