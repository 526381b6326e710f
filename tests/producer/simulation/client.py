"""NetworkClient's face over a SimulatedCluster: requests wait until the history lets a broker serve them, or cuts them off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.client.connections import Body
from spark_kafka_sink.client.metadata import Metadata
from spark_kafka_sink.client.metadata_requests import Rejection
from spark_kafka_sink.client.network_client import ClientResponse
from spark_kafka_sink.errors import AuthenticationError, DisconnectedError
from spark_kafka_sink.network.kafka_channel import NetworkCounts
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.identity import MAX_PRODUCE_VERSION
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.apis.metadata import METADATA
from spark_kafka_sink.protocol.apis.produce import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import PreparedRequest, decode_request
from tests.producer.simulation.clock import VirtualClock
from tests.producer.simulation.cluster import NODES, SimulatedCluster

FOREVER_MS = 2**62
FRAME_PREFIX = 4  # bytes, for the frame's size
RECONNECT_MS = 50

Data = list[tuple[int, bytes]]


def decoded(body: Body) -> ProduceRequest:
    """Returns a Produce request as a broker reads it now."""
    assert isinstance(body, PreparedRequest)
    _, request = decode_request(b"".join(body.encode(MAX_PRODUCE_VERSION, 0)))
    assert isinstance(request, ProduceRequest)
    return request


@dataclass(eq=False)
class Request:
    """`answer`: once a broker has served it."""

    node: int
    api: AnyApi
    body: Body
    tag: object
    sent_ms: int
    answer: Message | None = None

    def data(self) -> Data:
        """What a broker reads of it now, out of the producer's own memory."""
        body = decoded(self.body)
        return [(part.index, b"".join(part.records or ())) for topic in body.topic_data for part in topic.partition_data]


class SimulatedClient:
    """`healthy`: brokers serve everything at once, and a poll lets as much time pass as it may wait. `patient`: no request times
    out."""

    def __init__(self, cluster: SimulatedCluster, clock: VirtualClock, config: ProducerConfig, metadata: Metadata) -> None:
        self.cluster, self.clock, self.metadata = cluster, clock, metadata
        self.limit = config.max_in_flight
        self.request_timeout_ms = config.request_timeout_ms
        self.max_request_size, self.client_id = config.max_request_size, config.client_id
        self.in_flight: dict[int, deque[Request]] = {node: deque() for node in NODES}
        self.late: list[tuple[int, Data]] = []  # of a connection that ended, still in its broker's queue
        self.responses: list[ClientResponse] = []
        self.not_before_ms = dict.fromkeys(NODES, 0)
        self.healthy = self.patient = self.closed = False
        self.refuse_metadata = False
        self.locked_out_by: set[int] = set()  # brokers that reject the login
        self.rejections: dict[int, Rejection] = {}
        self.on_wakeup: Callable[[], None] = lambda: None
        self.coordinator: Callable[[Any], Message] | None = None  # of transactions, which are then of version 2

    # What the sender asks for

    def finalized_feature(self, name: str) -> int:
        return 0 if self.coordinator is None else 2

    def is_unavailable(self, node: int) -> bool:
        return node not in self.cluster.up

    def ready(self, node: int, now_ms: int) -> bool:
        if self.metadata.time_to_next_update_ms(now_ms) <= 0 or now_ms < self.not_before_ms[node]:
            return False
        if node not in self.cluster.up:
            self.not_before_ms[node] = now_ms + RECONNECT_MS
            self.metadata.request_update()
            return False
        if node in self.locked_out_by:
            self.not_before_ms[node] = now_ms + RECONNECT_MS
            self.rejections[node] = Rejection(AuthenticationError("the account is locked", broker=node), ends_metadata=False)
            return False
        return len(self.in_flight[node]) < self.limit

    def why_not_ready(self, node: int) -> str | None:
        return None if node in self.cluster.up else "it is down"

    def outages(self) -> str:
        return ""

    def is_throttled(self, node: int, now_ms: int) -> bool:
        return False

    def poll_delay_ms(self, node: int, now_ms: int) -> int:
        return max(self.not_before_ms[node] - now_ms, 0) or FOREVER_MS

    def in_flight_count(self, node: int) -> int:
        return len(self.in_flight[node])

    def connected_nodes(self, now_ms: int) -> list[int]:
        """No broker here takes client metrics."""
        return []

    def least_loaded_node(self, now_ms: int) -> int | None:
        may = [node for node in self.cluster.up if now_ms >= self.not_before_ms[node] and len(self.in_flight[node]) < self.limit]
        return min(may, key=lambda node: (len(self.in_flight[node]), node), default=None)

    def send(
        self,
        node: int,
        api: AnyApi,
        body: Body,
        now_ms: int,
        *,
        expects_answer: bool = True,
        tag: object = None,
        max_version: int | None = None,
    ) -> None:
        assert self.ready(node, now_ms)
        if isinstance(body, PreparedRequest):
            self._check_size(body)
        request = Request(node, api, body, tag, now_ms)
        if expects_answer:
            self.in_flight[node].append(request)
        else:
            self.late.append((node, request.data()))
            self._respond(request, None)

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        told = self._ask_for_metadata(now_ms)
        if self.healthy:
            self.serve_all()
        self._receive(now_ms)
        responses, self.responses = self.responses, []
        if self.healthy and not responses and not told:
            self.clock.ms += max(1, min(timeout_ms, *self._next_ms(now_ms)))
        return responses

    def wakeup(self) -> None:
        self.on_wakeup()

    def take_rejections(self) -> dict[int, Rejection]:
        taken, self.rejections = self.rejections, {}
        return taken

    def take_counts(self) -> NetworkCounts:
        return NetworkCounts()

    def close(self) -> None:
        self.closed = True

    def _check_size(self, body: PreparedRequest) -> None:
        """Over max.request.size is at most a batch that is alone."""
        size = FRAME_PREFIX + sum(map(len, body.encode(MAX_PRODUCE_VERSION, 0)))
        assert size <= self.max_request_size or sum(len(topic.partition_data) for topic in decoded(body).topic_data) == 1

    # What happens on the way

    def serve(self, node: int, fates: Iterable[str], *, count: int) -> None:
        """A broker does what so many requests ask for, the oldest first that it has not answered yet. It has one queue for all
        connections, so what came over one that has ended is done before. The fates are for one batch after the other."""
        self.serve_late(node, len(self.late))
        own = iter(fates)
        for request in [request for request in self.in_flight[node] if request.answer is None][:count]:
            if self.coordinator is not None and not isinstance(request.body, PreparedRequest):
                request.answer = self.coordinator(request.body(4) if callable(request.body) else request.body)
            elif isinstance(request.body, InitProducerIdRequest):
                request.answer = self._producer_id(next(own, "as Kafka"))
            else:
                request.answer = self.cluster.produce(node, request.data(), own)

    def serve_all(self) -> None:
        for node, requests in self.in_flight.items():
            self.serve(node, (), count=len(requests))

    def serve_late(self, node: int, count: int) -> None:
        own = [request for request in self.late if request[0] == node][:count]
        for request in own:
            self.late.remove(request)
            self.cluster.produce(node, request[1], iter(()))

    def cut(self, node: int, *, late: bool) -> None:
        """The connection ends. What was served is lost on the way back; the rest is lost, or served later."""
        requests, self.in_flight[node] = self.in_flight[node], deque()
        for request in requests:
            if late and request.answer is None and isinstance(request.body, PreparedRequest):
                self.late.append((node, request.data()))
            self._respond(request, DisconnectedError("the connection was cut", node_id=node))
        self.not_before_ms[node] = self.clock.ms + RECONNECT_MS
        self.metadata.request_update()

    def _producer_id(self, fate: str) -> InitProducerIdResponse:
        if fate != "as Kafka":
            return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id, epoch = self.cluster.producer_id()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    def _ask_for_metadata(self, now_ms: int) -> bool:
        if self.metadata.time_to_next_update_ms(now_ms) > 0:
            return False
        request = self.metadata.next_request(now_ms)
        request.body(METADATA.max_version)
        if self.refuse_metadata or not self.cluster.up:
            self.metadata.failed_attempt("a broker", "it is down", now_ms)
        else:
            self.metadata.update(request, self.cluster.metadata(), "a broker", now_ms)
        return True

    def _receive(self, now_ms: int) -> None:
        for node, requests in self.in_flight.items():
            while requests and requests[0].answer is not None:
                request = requests.popleft()
                self._respond(request, None)
            if requests and not self.patient and now_ms - requests[0].sent_ms >= self.request_timeout_ms:
                self.cut(node, late=True)

    def _respond(self, request: Request, error: DisconnectedError | None) -> None:
        body = request.answer if error is None else None
        latency_ms = self.clock.ms - request.sent_ms
        response = ClientResponse(request.node, request.api, 9, request.tag, body, error, request.sent_ms, latency_ms)
        self.responses.append(response)

    def _next_ms(self, now_ms: int) -> Sequence[int]:
        back_off = [until - now_ms for until in self.not_before_ms.values() if until > now_ms]
        return [self.metadata.time_to_next_update_ms(now_ms), *back_off]
