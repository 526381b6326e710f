"""The producer id and epoch that idempotent batches carry: asked for when it is first needed, and again when it is used up."""

from __future__ import annotations

import logging

from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import BrokerError, KafkaSinkError, UnsupportedVersionError
from spark_kafka_sink.producer.accumulator.producer_batch import NO_PRODUCER, ProducerIdAndEpoch
from spark_kafka_sink.producer.sender.error_policy import ADVICE, WITHOUT_IDEMPOTENCE, Action, action_for
from spark_kafka_sink.protocol.error_codes import error_facts
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse

log = logging.getLogger(__name__)

WARN_EVERY_MS = 5000  # a broker that has just started refuses for a moment: COORDINATOR_LOAD_IN_PROGRESS


class ProducerIdentity:
    """Who this producer is to the brokers. Used by the sender's thread only.

    Without idempotence it is NO_PRODUCER from the start. Passing errors are asked again after retry.backoff.ms, for as long
    as there are records that need it: they end with delivery.timeout.ms. Those that last are warned of. A broker that does not
    have the API ends the producer at once.
    """

    def __init__(self, config: ProducerConfig, client: NetworkClient) -> None:
        self._client = client
        self._back_off_ms = config.retry_backoff_ms
        self._current: ProducerIdAndEpoch | None = None if config.enable_idempotence else NO_PRODUCER
        self._asked = False
        self._not_before_ms = 0
        self._quiet_until_ms: int | None = None  # None: the last answer was none that refused
        self.last_error = "no broker could be asked"

    @property
    def current(self) -> ProducerIdAndEpoch | None:
        return self._current

    def renew(self) -> None:
        """The epochs of this producer id are used up: ask for another id."""
        self._current = None

    def ask(self, now_ms: int) -> int:
        """Ask for an identity if there is none. How long until asking again makes sense, in ms."""
        if self._current is not None or self._asked:
            return 2**62
        if now_ms < self._not_before_ms:
            return self._not_before_ms - now_ms
        node = self._client.least_loaded_node(now_ms)
        if node is None:
            return self._back_off_ms
        if not self._client.ready(node, now_ms):
            return self._client.poll_delay_ms(node, now_ms)
        self._client.send(node, INIT_PRODUCER_ID, InitProducerIdRequest(), now_ms, tag=self)
        self._asked = True
        return 2**62

    def answered(self, response: ClientResponse, now_ms: int) -> KafkaSinkError | None:
        """Take the answer; an error is returned when the producer cannot go on."""
        self._asked = False
        self._not_before_ms = now_ms + self._back_off_ms
        if isinstance(response.error, UnsupportedVersionError):
            # Time does not change that. As Java's producer, which ends with it (TxnRequestHandler.onComplete).
            text = f"{response.error.message}: it gives out no producer ids, which idempotence needs; {WITHOUT_IDEMPOTENCE}"
            return UnsupportedVersionError(text, **response.error.facts)
        if response.error is not None:
            self._ask_again(response, str(response.error), now_ms)
            return None
        body = response.body
        assert isinstance(body, InitProducerIdResponse)
        if body.error_code == 0:
            self._current = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
            self._quiet_until_ms = None
            return None
        name = error_facts(body.error_code).name
        if action_for(body.error_code, idempotent=True) is Action.RETRY:
            self._ask_again(response, name, now_ms)
            return None
        advice = ADVICE.get(body.error_code, WITHOUT_IDEMPOTENCE)
        return BrokerError(f"InitProducerId refused: {name}; {advice}", error_code=body.error_code, error=name)

    def _ask_again(self, response: ClientResponse, error: str, now_ms: int) -> None:
        self.last_error = f"InitProducerId at broker {response.node_id}: {error}"
        lasts = self._quiet_until_ms is not None and now_ms >= self._quiet_until_ms
        if lasts or self._quiet_until_ms is None:
            self._quiet_until_ms = now_ms + WARN_EVERY_MS
        log.log(logging.WARNING if lasts else logging.INFO, "%s", self.last_error)
