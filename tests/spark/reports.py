"""Delivery reports as hypothesis makes them."""

from __future__ import annotations

from hypothesis import strategies as st

from spark_kafka_sink.reports.delivery_report import LATENCY_BUCKETS, DeliveryReport
from spark_kafka_sink.reports.partition_reports import PartitionReport, PartitionReports

_counts = st.integers(0, 2**62)
_of_a_partition = st.builds(
    PartitionReport, st.integers(0, 2**59), st.integers(0, 2**59), st.integers(-1, 2**62), st.integers(-1, 2**62)
)
_topics = st.text(min_size=1, max_size=2)

# Some with topics as one sum.
partition_reports = st.builds(
    lambda each, maximum: PartitionReports(each).summed(maximum),
    st.dictionaries(st.tuples(_topics, st.integers(0, 2**31 - 1)), _of_a_partition, max_size=4),
    st.integers(0, 4),
)

reports = st.builds(
    DeliveryReport,
    records=_counts,
    bytes=_counts,
    compressed_bytes=_counts,
    batches=_counts,
    requests=_counts,
    retries=_counts,
    bad_rows=st.dictionaries(st.sampled_from(["serialization", "MESSAGE_TOO_LARGE"]), _counts),
    dead_letters=_counts,
    bad_row_example=st.text(max_size=3),
    throttled_ms=_counts,
    rate_limited_ms=_counts,
    older_than_retention=_counts,
    errors=st.dictionaries(st.sampled_from(["NOT_LEADER_OR_FOLLOWER", "DISCONNECTED"]), _counts),
    partitions=partition_reports,
    ack_latency=st.dictionaries(_topics, st.lists(_counts, min_size=LATENCY_BUCKETS, max_size=LATENCY_BUCKETS), max_size=2),
)
