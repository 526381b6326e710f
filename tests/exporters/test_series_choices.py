from __future__ import annotations

from spark_kafka_sink.exporters.series_choices import TopicLimit
from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS
from spark_kafka_sink.reports.partition_reports import ALL_PARTITIONS, PartitionReport, PartitionReports


def reports(**records: int) -> PartitionReports:
    return PartitionReports({(topic, 0): PartitionReport(count, 10 * count, 0, 1) for topic, count in records.items()})


def counts(found: PartitionReports) -> dict[tuple[str, int], tuple[int, int]]:
    return {key: (one.records, one.bytes) for key, one in found.items()}


def test_up_to_the_limit_each_topic_has_its_own_series() -> None:
    all_of_them = reports(a=1, b=2, other=3)
    assert TopicLimit(3).partitions(all_of_them) == all_of_them


def test_beyond_it_the_topics_with_the_most_records_keep_theirs() -> None:
    found = TopicLimit(3).partitions(reports(a=5, b=1, c=7, d=2))
    assert counts(found) == {("a", 0): (5, 50), ("c", 0): (7, 70), ("other", ALL_PARTITIONS): (3, 30)}


def test_the_choice_stays_so_that_no_sum_shrinks() -> None:
    limit = TopicLimit(2)
    limit.partitions(reports(a=5, b=1, c=1))
    found = limit.partitions(reports(a=5, b=100, c=1, d=1))
    assert counts(found) == {("a", 0): (5, 50), ("other", ALL_PARTITIONS): (102, 1020)}


def partitions(**number: int) -> PartitionReports:
    of = ((topic, partition) for topic, count in number.items() for partition in range(count))
    return PartitionReports({key: PartitionReport(1, 10, 0, 0) for key in of})


def test_a_sum_of_a_topics_partitions_stays_one_when_another_topic_has_more() -> None:
    limit = TopicLimit(200)

    def summed(**number: int) -> set[str]:
        return {topic for topic, partition in limit.partitions(partitions(**number)) if partition == ALL_PARTITIONS}

    assert summed(a=100, b=90) == set()
    assert summed(a=120, b=90) == {"a"}
    assert summed(a=120, b=121) == {"a"}  # which are 122 series
    assert summed(a=120, b=121, c=90) == {"a", "b"}
    assert summed(a=1, b=300, c=150) == {"a", "b"}
    assert limit.partitions(partitions(a=1))["a", ALL_PARTITIONS].records == 1


def test_a_topic_with_the_name_of_the_sum_is_part_of_it() -> None:
    found = TopicLimit(3).partitions(reports(other=9, a=1, b=2, c=3))
    assert counts(found) == {("c", 0): (3, 30), ("b", 0): (2, 20), ("other", ALL_PARTITIONS): (10, 100)}


def test_a_limit_of_one_or_none_leaves_the_sum() -> None:
    for most in (1, 0, -1):
        assert counts(TopicLimit(most).partitions(reports(a=1, b=2))) == {("other", ALL_PARTITIONS): (3, 30)}


def test_histograms_of_other_topics_are_one() -> None:
    def histogram(count: int) -> list[int]:
        return [count, *[0] * (LATENCY_BUCKETS - 2), 1]

    limit, latencies = TopicLimit(2), {"a": histogram(1), "b": histogram(2), "c": histogram(3)}
    found = limit.latencies(latencies, reports(a=1, b=9, c=2))
    assert found == {"b": histogram(2), "other": [4, *[0] * (LATENCY_BUCKETS - 2), 2]}
    assert TopicLimit(3).latencies(latencies, reports(a=1, b=9, c=2)) == latencies
