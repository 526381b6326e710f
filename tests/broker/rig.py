"""A cluster without sockets: handlers are called directly, and time passes when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.broker_services import BrokerServices, SharedServices, wall_ms
from spark_kafka_sink.broker.kafka_apis import KafkaApis
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.broker.network.request import Request, ResponseAction
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from tests.broker.cluster.clusters import broker
from tests.broker.requests import Responses, request
from tests.broker.virtual_timer import VirtualTimer

AnyHandler = Callable[[BrokerServices, Request], Message | None]


class Asked:
    """A request that was handled, and what became of it."""

    def __init__(self, asked: Request, responses: Responses) -> None:
        self._asked = asked
        self._responses = responses

    @property
    def is_answered(self) -> bool:
        return self._asked.is_answered

    @property
    def action(self) -> ResponseAction:
        (action,) = self._responses.actions
        return action

    @property
    def answer(self) -> Any:
        """The body of the answer, written in the request's version and read back."""
        return self._responses.answer()


class Rig:
    """In memory, with `brokers` that run; `services(n)` are those of broker n."""

    def __init__(self, brokers: int = 1, **config: Any) -> None:
        self.timer = VirtualTimer()
        self.shared = SharedServices(BrokerConfig(**config), self.timer)
        self.cluster = self.shared.cluster
        self._brokers = brokers

    def __enter__(self) -> Self:
        self.shared.start()
        self.cluster.brokers_up(*map(broker, range(1, self._brokers + 1)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shared.stop()

    def services(self, broker: int = 1) -> BrokerServices:
        return self.shared.of_broker(broker)

    def ask(
        self, handler: AnyHandler, body: Message, key: ApiKey, version: int | None = None, *, broker: int = 1, **options: Any
    ) -> Asked:
        """As KafkaApis does: what the handler returns is the answer; None: it comes later, or never."""
        responses = Responses()
        asked = request(body, key, version, responses=responses, **options)
        returned = handler(self.services(broker), asked)
        if returned is not None:
            asked.answer(returned)
        return Asked(asked, responses)

    def ask_api(self, body: Message, key: ApiKey, version: int | None = None, **options: Any) -> Any:
        """Through KafkaApis, so that what a handler raises is answered too; the answer."""
        responses = Responses()
        KafkaApis(self.services()).handle(request(body, key, version, responses=responses, **options))
        return responses.answer()

    def log(self, topic: str, partition: int = 0) -> UnifiedLog:
        log = self.shared.logs.get(topic, partition)
        assert log is not None
        return log


def batch(*values: bytes, **marks: Any) -> bytes:
    """Of records without a key, at the time of now. `marks`: as small_batch has them."""
    return small_batch([NewRecord(None, value, timestamp=wall_ms()) for value in values], **marks)
