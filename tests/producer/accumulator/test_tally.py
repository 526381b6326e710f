"""Counts that other threads read at any instant."""

from __future__ import annotations

from threading import Thread

from spark_kafka_sink.errors import BrokerError, FlushTimeoutError, KafkaSinkError
from spark_kafka_sink.producer.accumulator.tally import Tally


def test_a_flush_in_the_middle_of_a_failure_does_not_end_as_if_all_were_stored() -> None:
    tally = Tally()
    tally.batches_added(1)
    ends: list[KafkaSinkError | None] = []

    def flush() -> None:
        try:
            tally.wait_for_acks(0, lambda: None)
        except KafkaSinkError as error:
            ends.append(error)
        else:
            ends.append(None)

    class Count(int):
        """Flushes while it is added to the failed records."""

        def __radd__(self, other: int) -> int:
            flushing = Thread(target=flush)
            flushing.start()
            flushing.join()
            return other + int(self)

    tally.batch_failed(Count(1), BrokerError("rejected"))
    assert [type(end) for end in ends] == [FlushTimeoutError]
