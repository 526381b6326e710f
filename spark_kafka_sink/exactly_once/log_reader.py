"""Reads the committed records of one partition in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from spark_kafka_sink.client.backoff import ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.cluster_requests import Answer
from spark_kafka_sink.exactly_once.commit_log_topic import leader_of
from spark_kafka_sink.exactly_once.coordinator_rounds import BACKOFF
from spark_kafka_sink.exactly_once.partition_reader import READ_COMMITTED, PartitionReader, data_of
from spark_kafka_sink.protocol.apis.fetch import FETCH, PartitionData
from spark_kafka_sink.protocol.apis.partition_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.decoder import decode_batches
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.security.acls import COMMIT_LOG

_MAX_WAIT_MS: Final = 500


class LogReader(PartitionReader):
    """Reads on from where it stopped before.

    If that position is lost, because the topic was recreated or the log was truncated, it starts over. It then calls
    `on_restart` before the first record: everything read before is void.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        partition: int,
        on_record: Callable[[Record], None],
        on_restart: Callable[[], None],
    ) -> None:
        super().__init__(client, topic, partition, COMMIT_LOG)
        self._on_record = on_record
        self._on_restart = on_restart
        self._position: int | None = None  # the offset of the first unread record
        self._end: int | None = None  # the high watermark to read to
        self._is_confirmed = False  # a Fetch confirmed that it is still the same topic

    @property
    def position(self) -> int:
        """The offset of the first unread record, after `read_to_end`."""
        assert self._position is not None
        return self._position

    def read_to_end(self, deadline: float) -> None:
        """Reads the committed records up to the current high watermark, and waits for open transactions before it to end.

        Raises DeadlineError, which names the offset of such a transaction, and AuthorizationError if the client may not read.
        """
        self._waiting = ResponseWaiter(deadline, BACKOFF)
        self._end, self._is_confirmed = None, False
        while not self._is_at_end():
            node_id = leader_of(self._client, self._topic, self._partition, deadline)
            topic_id = self._client.known().topic_id(self._topic)
            if topic_id != self.topic_id:
                self.topic_id = topic_id
                self._restart()
            if not self._round(node_id, deadline):
                self._waiting.again()
            elif not self._is_at_end() and self._waiting.is_over:
                self._waiting.fail()

    def between(self, end: int, deadline: float) -> list[Record]:
        """Returns the records from `position` to the offset `end`, committed or not. `end` must be below the high watermark.

        Raises ClaimLostError if the topic was made again since it was read.
        """
        data = (each for each in self._batches(self.position, end, deadline) if not each.is_control)
        return [record for each in data for record in each.each_record() if self.position <= record.offset < end]

    # Inside

    def _is_at_end(self) -> bool:
        known = self._end is not None and self._position is not None and self._position >= self._end
        return known and self._is_confirmed

    def _restart(self) -> None:
        self._position = self._end = None
        self._is_confirmed = False
        self._on_restart()

    def _round(self, node_id: int, deadline: float) -> bool:
        """Requests unknown offsets, and fetches if they are known. False: try again after a pause, maybe with another leader."""
        unknown = [LATEST_TIMESTAMP] if self._end is None else []
        unknown += [EARLIEST_TIMESTAMP] if self._position is None else []
        questions = [self._offsets_request(node_id, timestamp) for timestamp in unknown]
        if self._position is not None:
            # At the end there is nothing to wait for; before it the broker answers as soon as the last stable offset moves.
            is_at_end = self._end is None or self._position >= self._end
            wait_ms = 0 if is_at_end else max(0, min(_MAX_WAIT_MS, round((deadline - time.monotonic()) * 500)))
            questions.append(self._fetch(node_id, self._position, READ_COMMITTED, wait_ms))
        answers = self._client.try_many(questions, deadline)
        offsets = [self._offset(answer) for answer in answers[: len(unknown)]]
        if None in offsets:
            return False
        for timestamp, offset in zip(unknown, offsets, strict=True):
            if timestamp == LATEST_TIMESTAMP:
                self._end = offset
            else:
                self._position = offset
        return len(answers) == len(unknown) or self._take_fetched(answers[-1])

    def _take_fetched(self, answer: Answer) -> bool:
        said = self._fetched(answer)
        if said is None:
            return False
        assert self._position is not None
        assert self._end is not None
        if said.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or self._position > self._end:
            self._restart()
            return False
        if not self._is_fine(said.error_code, FETCH.key):
            return False
        for record, after in committed_records(said, self._position):
            if record is not None:
                self._on_record(record)
            self._position = after
        self._is_confirmed = True
        if self._position < self._end:
            text = f"an open transaction blocks readers at offset {said.last_stable_offset} of {self._end} until it ends"
            self._waiting.note(self._where, text)
        return True


# The committed records in the response to a Fetch with read_committed. Java's CompletedFetch. Pure.

# Version 0, then the type (ControlRecordType).
ABORT: Final = b"\x00\x00\x00\x00"
COMMIT: Final = b"\x00\x00\x00\x01"


def committed_records(said: PartitionData, position: int) -> Iterator[tuple[Record | None, int]]:
    """Yields each record at or after `position` with the next offset, and None with the next offset at the end of each batch.

    Raises ProtocolError if the data is invalid.
    """
    aborted = sorted(said.aborted_transactions or (), key=lambda each: each.first_offset)
    producers = set[int]()  # whose records are being dropped
    for batch in decode_batches(data_of(said), cut_off=True):
        while aborted and aborted[0].first_offset <= batch.last_offset:
            producers.add(aborted.pop(0).producer_id)
        if batch.is_control:
            marker = next(batch.each_record(), None)  # None where compaction has removed it
            if marker is not None and marker.key == ABORT:
                producers.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in producers):
            for record in batch.each_record():
                if record.offset >= position:
                    yield record, record.offset + 1
        # Compaction removes records, even the last one, but a batch's end stays.
        yield None, max(position, batch.last_offset + 1)
