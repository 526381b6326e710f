"""Brokers in this process that keep to the protocol and to sequence numbers, but for what a test tells them to do wrong."""

from __future__ import annotations

import select
import socket
import threading
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from spark_kafka_sink.network.selector import Wakeup
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.init_producer_id import InitProducerIdResponse
from spark_kafka_sink.protocol.messages import APIS, RequestHeader, decode_request
from spark_kafka_sink.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from spark_kafka_sink.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from spark_kafka_sink.records.decoder import FetchedBatch, decode_batches
from tests.client.scripted_broker import Connection, versions
from tests.faults.stored_log import StoredLog

DEADLINE_S = 10.0
PRODUCER_ID = 4000
FRAME_PREFIX = 4  # bytes, for the frame's size


@dataclass(frozen=True, slots=True)
class Say:
    """What a broker is to answer to one batch. As it stands: what Kafka would.

    code: an error; the batch is not stored unless `stored`. hold: the answer, and those after it on the connection, wait for
    `MockCluster.release`. reset: the connection ends instead. absent: the answer says nothing of the partition. twice: it says
    the same of it two times.
    """

    code: int = 0
    stored: bool = False
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()
    log_start_offset: int = 0
    leader: LeaderIdAndEpoch | None = None
    throttle_ms: int = 0
    hold: bool = False
    reset: bool = False
    absent: bool = False
    twice: bool = False


AS_KAFKA = Say()


@dataclass(frozen=True, slots=True)
class Received:
    """A batch as it came to a broker, its CRC checked."""

    node: int
    topic: str
    partition: int
    batch: FetchedBatch
    values: tuple[bytes | None, ...]

    @property
    def numbers(self) -> tuple[int, int]:
        return self.batch.producer_epoch, self.batch.base_sequence


@dataclass(slots=True)
class Topic:
    """`leaders` and `epochs` by partition; `error` instead of them where it is not 0."""

    leaders: list[int]
    epochs: list[int]
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    error: int = 0


@dataclass(slots=True, eq=False)
class _Line:
    """A connection, whose it is, and the answers it holds back."""

    node: int
    connection: Connection
    held: list[tuple[RequestHeader, Message]] = field(default_factory=list)
    holding: bool = False


Script = Callable[[Received], Say]


class MockCluster:
    """Nodes 0 to `nodes` - 1, on free ports.

    One thread receives and answers; `changed` guards everything and is notified of each request.
    `script` says what to do with each batch; without it, or once `answers` for its partition are used up, all is as in Kafka.
    """

    def __init__(self, nodes: int = 1) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.nodes: dict[int, socket.socket] = {}
        self.topics: dict[str, Topic] = {}
        self.logs: dict[tuple[str, int], StoredLog] = defaultdict(StoredLog)
        self.received: list[Received] = []
        self.requests: list[tuple[int, int]] = []  # (node, API key)
        self.produced: list[tuple[int, int]] = []  # of each Produce request: its bytes, and how many batches are in it
        self.script: Script | None = None
        self.max_message_bytes = 2**31 - 1  # of every topic
        self.too_large: list[Received] = []  # what was refused for its size
        self.rejects: Callable[[bytes | None], str | None] = lambda value: None  # why every topic refuses a record
        self.rejected: list[Received] = []  # what was refused because of that
        self.described_as: dict[str, tuple[list[int], list[int]]] = {}  # leaders and epochs that Metadata tells instead
        self.unreachable: dict[int, tuple[str, int]] = {}  # nodes that are gone, and of which Metadata tells
        self.hidden: set[int] = set()  # nodes that Metadata does not tell of
        self.on_request: dict[int, Callable[[], object]] = {}  # by API key: called before the answer is made
        self.unknown_apis: set[int] = set()  # keys that ApiVersions does not tell of
        self.answers: deque[Say] = deque()
        self.init_answers: deque[int] = deque()  # error codes of the next InitProducerId answers
        self.producer_ids = 0
        self.first_epoch = 0  # that the first producer id comes with
        self.reading = True
        self.failure: BaseException | None = None
        self._lines: dict[Any, _Line] = {}
        self._wakeup = Wakeup()
        self._ended = False
        for node in range(nodes):
            self.start(node)
        self._thread = threading.Thread(target=self._run, name="mock-cluster", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended = True
        self._wakeup.wakeup()
        self._thread.join(DEADLINE_S)
        for node in list(self.nodes):
            self.stop(node)
        self._wakeup.close()
        if self.failure is not None:
            raise self.failure

    # What a test says and asks

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.address(node) for node in self.nodes)

    def address(self, node: int) -> str:
        host, port = self.nodes[node].getsockname()
        return f"{host}:{port}"

    def start(self, node: int) -> None:
        """A node that was not there yet; Metadata answers tell of it from now on."""
        with self.changed:
            self.nodes[node] = socket.create_server(("127.0.0.1", 0), backlog=16)
        self._wakeup.wakeup()

    def stop(self, node: int) -> None:
        """The node is gone: its connections are reset, new ones refused, and Metadata answers no longer tell of it."""
        with self.changed:
            self.nodes.pop(node).close()
            for line in [line for line in self._lines.values() if line.node == node]:
                self._forget(line, reset=True)

    def refuse(self, node: int) -> None:
        """As `stop`, but Metadata answers go on to tell of it."""
        with self.changed:
            self.unreachable[node] = self.nodes[node].getsockname()
            self.stop(node)

    def topic(self, name: str = "t", leaders: Sequence[int] = (0,)) -> str:
        """Make a topic, or make it anew."""
        with self.changed:
            for partition in range(len(leaders)):
                self.logs.pop((name, partition), None)
            self.topics[name] = Topic(list(leaders), [0] * len(leaders))
        return name

    def move(self, name: str, leader: int, partition: int = 0, *, epoch: int | None = None) -> None:
        """Elect another leader, which Metadata answers tell from now on."""
        with self.changed:
            topic = self.topics[name]
            topic.leaders[partition] = leader
            topic.epochs[partition] = topic.epochs[partition] + 1 if epoch is None else epoch

    def values(self, topic: str = "t", partition: int = 0) -> list[int]:
        """The records stored, which are numbers, padded or not."""
        with self.changed:
            return [int((value or b"").lstrip(b"0") or b"0") for value in self.logs[topic, partition].values]

    def attempts(self, value: int) -> list[Received]:
        """Every time that the batch with this record came."""
        with self.changed:
            return [received for received in self.received if b"%d" % value in received.values]

    def requests_of(self, key: ApiKey) -> int:
        with self.changed:
            return sum(asked == key for _, asked in self.requests)

    def wait_for(self, reached: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.failure is not None or reached(), deadline_s):
                raise AssertionError(f"{what}: not within {deadline_s:g} s; received {[r.values for r in self.received]}")

    def release(self) -> None:
        """Send what is held back, in order."""
        with self.changed:
            for line in self._lines.values():
                line.holding = False
                for header, body in line.held:
                    self._answer(line, header, body)
                line.held.clear()

    def stop_reading(self) -> None:
        """What is sent stays in the sockets' buffers, and on the sender's side when these are full."""
        with self.changed:
            self.reading = False
        self._wakeup.wakeup()

    def go_on_reading(self) -> None:
        with self.changed:
            self.reading = True
        self._wakeup.wakeup()

    def reset(self) -> None:
        """Cut every connection."""
        with self.changed:
            for line in list(self._lines.values()):
                self._forget(line, reset=True)

    # In the brokers' thread

    def _run(self) -> None:
        try:
            while not self._ended:
                self._poll()
        except BaseException as error:
            with self.changed:
                self.failure = error
                self.changed.notify_all()

    def _poll(self) -> None:
        with self.changed:
            waiting = [self._wakeup, *(self._lines if self.reading else ()), *self.nodes.values()]
        try:
            readable = select.select(waiting, [], [], 0.5)[0]
        except (OSError, ValueError):  # a test closed one of them meanwhile
            return
        with self.changed:
            listeners = {listener: node for node, listener in self.nodes.items()}
            for ready in readable:
                if ready in listeners:
                    self._accept(listeners[ready], ready)
                elif ready in self._lines and self.reading:
                    self._serve(self._lines[ready])
                elif ready is self._wakeup:
                    self._wakeup.drain()
            self.changed.notify_all()

    def _accept(self, node: int, listener: socket.socket) -> None:
        connection = Connection(listener.accept()[0])
        self._lines[connection.socket] = _Line(node, connection)

    def _serve(self, line: _Line) -> None:
        try:
            frame = line.connection.receive_frame()
            header, body = decode_request(frame)
        except (EOFError, ConnectionError):
            self._forget(line)
            return
        self.requests.append((line.node, header.api_key))
        if isinstance(body, ProduceRequest):
            self.produced.append((len(frame) + FRAME_PREFIX, sum(len(topic.partition_data) for topic in body.topic_data)))
        self.on_request.get(header.api_key, lambda: None)()
        answer = self._answers[header.api_key](self, line, body)
        if answer is None:
            return
        if line.holding:
            line.held.append((header, answer))
        else:
            self._answer(line, header, answer)

    def _answer(self, line: _Line, header: RequestHeader, body: Message) -> None:
        try:
            line.connection.answer(header, body)
        except OSError:  # the client gave up
            self._forget(line)

    def _forget(self, line: _Line, *, reset: bool = False) -> None:
        if self._lines.pop(line.connection.socket, None) is not None:
            line.connection.reset() if reset else line.connection.close()

    def _versions(self, line: _Line, body: Any) -> Message:
        return versions({key: (api.min_version, api.max_version) for key, api in APIS.items() if key not in self.unknown_apis})

    def _init_producer_id(self, line: _Line, body: Any) -> Message:
        code = self.init_answers.popleft() if self.init_answers else 0
        if code:
            return InitProducerIdResponse(error_code=code)
        self.producer_ids += 1
        epoch = self.first_epoch if self.producer_ids == 1 else 0
        return InitProducerIdResponse(producer_id=PRODUCER_ID + self.producer_ids, producer_epoch=epoch)

    def _metadata(self, line: _Line, body: Any) -> Message:
        names = list(self.topics) if body.topics is None else [topic.name for topic in body.topics]
        addresses = {node: listener.getsockname() for node, listener in self.nodes.items() if node not in self.hidden}
        told = self.unreachable | addresses
        brokers = [MetadataResponseBroker(node_id=node, host=host, port=port) for node, (host, port) in told.items()]
        return MetadataResponse(brokers=brokers, cluster_id="mock", controller_id=0, topics=list(map(self._describe, names)))

    def _describe(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None or topic.error:
            return MetadataResponseTopic(error_code=topic.error if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        leaders, epochs = self.described_as.get(name, (topic.leaders, topic.epochs))
        partitions = [
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else 0,
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
            )
            for index, (leader, epoch) in enumerate(zip(leaders, epochs, strict=True))
        ]
        return MetadataResponseTopic(error_code=0, name=name, topic_id=topic.id, partitions=partitions)

    def _produce(self, line: _Line, body: ProduceRequest) -> Message | None:
        batches = [
            Received(line.node, topic.name, data.index, batch, tuple(record.value for record in batch.records()))
            for topic in body.topic_data
            for data in topic.partition_data
            for batch in decode_batches(b"".join(data.records or ()))
        ]
        self.received += batches
        said = [(received, self._say(received)) for received in batches]
        answers = [(received, self._partition(received, say)) for received, say in said]
        if any(say.reset for _, say in said):
            self._forget(line, reset=True)
            return None
        if body.acks == 0:
            return None
        line.holding |= any(say.hold for _, say in said)
        return self._produce_response(answers, said)

    def _say(self, received: Received) -> Say:
        if self.script is not None:
            return self.script(received)
        return self.answers.popleft() if self.answers else AS_KAFKA

    def _partition(self, received: Received, say: Say) -> PartitionProduceResponse:
        code, base_offset = say.code, -1
        if not code and received.batch.size > self.max_message_bytes:  # before the sequence is looked at, as in UnifiedLog.append
            code = ErrorCode.MESSAGE_TOO_LARGE
        if code == ErrorCode.MESSAGE_TOO_LARGE and not say.stored:
            self.too_large.append(received)
        record_errors = say.record_errors if code else self._record_errors(received)
        if record_errors:
            code = code or ErrorCode.INVALID_RECORD
            self.rejected.append(received)
        topic = self.topics.get(received.topic)
        if not code and (topic is None or received.partition >= len(topic.leaders)):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not code and topic is not None and topic.leaders[received.partition] != received.node:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not code or say.stored:
            kafkas, base_offset = self.logs[received.topic, received.partition].append(received.batch)
            code = code or kafkas
        return PartitionProduceResponse(
            index=received.partition,
            error_code=code,
            base_offset=-1 if code else base_offset,
            log_start_offset=say.log_start_offset,
            record_errors=[BatchIndexAndErrorMessage(index, text) for index, text in record_errors],
            error_message=say.message,
            current_leader=say.leader,
        )

    def _record_errors(self, received: Received) -> tuple[tuple[int, str], ...]:
        """LogValidator: each record is looked at, before the batch's sequence is."""
        found = ((row, self.rejects(value)) for row, value in enumerate(received.values))
        return tuple((row, text) for row, text in found if text is not None)

    def _produce_response(
        self, answers: list[tuple[Received, PartitionProduceResponse]], said: list[tuple[Received, Say]]
    ) -> ProduceResponse:
        by_topic: dict[str, list[PartitionProduceResponse]] = defaultdict(list)
        for (received, answer), (_, say) in zip(answers, said, strict=True):
            by_topic[received.topic] += [answer] * (0 if say.absent else 2 if say.twice else 1)
        leaders = {say.leader.leader_id for _, say in said if say.leader is not None}
        return ProduceResponse(
            responses=[TopicProduceResponse(name=name, partition_responses=parts) for name, parts in by_topic.items()],
            throttle_time_ms=max(say.throttle_ms for _, say in said),
            node_endpoints=[NodeEndpoint(node, *self.nodes[node].getsockname()) for node in sorted(leaders & set(self.nodes))],
        )

    _answers: dict[int, Callable[[MockCluster, _Line, Any], Message | None]] = {
        ApiKey.API_VERSIONS: _versions,
        ApiKey.METADATA: _metadata,
        ApiKey.INIT_PRODUCER_ID: _init_producer_id,
        ApiKey.PRODUCE: _produce,
    }
