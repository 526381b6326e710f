"""Sequence numbers go on with 0 after 2**31 - 1."""

from __future__ import annotations

import pytest

from spark_kafka_sink.producer.accumulator.sequences import PartitionSequences, ProducerIdAndEpoch
from tests.faults.producing import numbers, one_by_one
from tests.kafka.dump_log import dump_log
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.witness import read_topic

LAST = 2**31 - 1
BEFORE_IT = 20
COUNT = 60


@pytest.mark.fault("sequence", "wrap at 2^31")
def test_records_around_the_last_number_are_stored_once_and_in_order_though_answers_are_lost(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(1, on=proxied_kafka.cluster)
    made = PartitionSequences.__init__

    def late(self: PartitionSequences, producer: ProducerIdAndEpoch) -> None:
        """A broker that does not know the producer accepts any first number."""
        made(self, producer)
        self.next_record = self.acked_through = LAST + 1 - BEFORE_IT

    monkeypatch.setattr(PartitionSequences, "__init__", late)
    with one_by_one(proxied_kafka.cluster.bootstrap_servers) as producer, producer.scope() as scope:
        for begin in range(0, COUNT, 10):
            scope.append(topic, numbers(range(begin, begin + 10)))
            proxied_kafka.proxy.cut()
        scope.flush(30)
        assert scope.report().records == COUNT
    read = read_topic(proxied_kafka.cluster.direct_servers, topic)
    assert [int(record.value or b"") for record in read] == list(range(COUNT))
    batches = dump_log(proxied_kafka.cluster, 1, topic)
    assert [batch.base_sequence for batch in batches] == [*range(LAST + 1 - BEFORE_IT, LAST + 1), *range(COUNT - BEFORE_IT)]
    assert len({(batch.producer_id, batch.producer_epoch) for batch in batches}) == 1
