"""How long the sender's poll may wait after it has begun to send a request."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa

from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.records.columns import RecordColumns
from tests.producer.inside import metadata_of
from tests.producer.simulation.clock import VirtualClock
from tests.producer.simulation.cluster import TOPIC, SimulatedCluster
from tests.producer.simulation.stepped_producer import SteppedProducer

SETTINGS = {"bootstrap.servers": "a:1", "enable.idempotence": False, "linger.ms": 0}


def test_the_poll_that_writes_a_request_may_wait_until_all_of_it_is_written() -> None:
    """Otherwise each part of a large request that the system takes costs another round over all queues."""
    clock = VirtualClock()
    stepped = SteppedProducer(producer_config(SETTINGS), SimulatedCluster(1, strict=True, max_batch=1 << 20, rejects=0), clock)
    try:
        metadata_of(stepped.producer).add(TOPIC, clock.ms)
        stepped.client.healthy = True
        stepped.step()
        stepped.client.healthy = False
        with stepped.producer.scope() as scope:
            scope.append(TOPIC, RecordColumns(1, pa.array([b"x"])))
            with patch.object(stepped.client, "poll", wraps=stepped.client.poll) as poll:
                stepped.step()
            assert sum(map(len, stepped.client.in_flight.values())) == 1, "the request is under way"
            ((timeout_ms, _),) = [call.args for call in poll.call_args_list]
            assert timeout_ms >= 1000
            stepped.client.healthy = True
            stepped.step()
            assert not stepped.unfinished()
    finally:
        stepped.end()
