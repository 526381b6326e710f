"""Delivery reports as hypothesis makes them."""

from __future__ import annotations

from hypothesis import strategies as st

from spark_kafka_sink.producer.report import LATENCY_BUCKETS, DeliveryReport, PartitionReport

_counts = st.integers(0, 2**62)
_topics = st.text(min_size=1, max_size=5)

reports = st.builds(
    DeliveryReport,
    records=_counts,
    bytes=_counts,
    compressed_bytes=_counts,
    batches=_counts,
    requests=_counts,
    retries=_counts,
    errors=st.dictionaries(st.sampled_from(["NOT_LEADER_OR_FOLLOWER", "DISCONNECTED"]), _counts),
    partitions=st.dictionaries(
        st.tuples(_topics, st.integers(0, 2**31 - 1)),
        st.builds(PartitionReport, _counts, _counts, st.integers(-1, 2**62), st.integers(-1, 2**62)),
        max_size=3,
    ),
    ack_latency=st.dictionaries(_topics, st.lists(_counts, min_size=LATENCY_BUCKETS, max_size=LATENCY_BUCKETS), max_size=2),
)
