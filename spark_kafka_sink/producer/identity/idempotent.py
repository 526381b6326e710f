"""The producer id and epoch of idempotent batches: requested when first needed, and again when the epochs are used up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.errors import KafkaSinkError, UnsupportedVersionError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import PartitionQueue
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.sequences import ProducerIdAndEpoch
from spark_kafka_sink.producer.base.lifecycle import FOREVER_MS
from spark_kafka_sink.producer.base.produce_reactions import WITHOUT_IDEMPOTENCE, Action, action_for
from spark_kafka_sink.producer.identity.identity import NumberedIdentity
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.security.acls import rights_of

logger = logging.getLogger(__name__)

WARN_EVERY_MS = 5000  # a broker that has just started may reject requests for a moment: COORDINATOR_LOAD_IN_PROGRESS


class IdempotentIdentity(NumberedIdentity):
    """enable.idempotence without transactions: a producer id from any broker, and an epoch per partition.

    Transient errors are retried after retry.backoff.ms while records need the id; those expire with delivery.timeout.ms. Lasting
    errors are logged. A broker without the API ends the producer at once.
    """

    def __init__(self, config: ProducerConfig, client: NetworkClient, accumulator: RecordAccumulator) -> None:
        self._client = client
        self._accumulator = accumulator
        self._rights = partial(rights_of, config.bootstrap_servers, config.security)
        self._back_off_ms = config.retry_backoff_ms
        self._current: ProducerIdAndEpoch | None = None
        self._gaps: set[PartitionQueue] = set()
        self._asked = False
        self._changes = 0  # of the cluster; the tag of requests, because a response may arrive after a change
        self._not_before_ms = 0
        self._quiet_until_ms: int | None = None  # None: the last response was not a rejection
        self._last_error = "no broker could be asked"

    @property
    def current(self) -> ProducerIdAndEpoch | None:
        return self._current

    @property
    def blocked_reason(self) -> str:
        return f"there is no producer id yet; {self._last_error}"

    def cluster_changed(self, error: KafkaSinkError) -> None:
        """Requests a producer id of the new cluster, which may have given this one to another producer.

        That producer's batches with the same numbers would make these count as stored.
        """
        self._current, self._asked = None, False
        self._changes += 1
        self._gaps = self._accumulator.numbered_queues()
        for queue in self._gaps:
            assert queue.sequences is not None
            queue.sequences.cluster_changed()

    def settled(self, queue: PartitionQueue) -> None:
        if queue.sequences is not None and queue.sequences.gap:
            self._gaps.add(queue)

    def resolve_gaps(self) -> None:
        """Starts new epochs where nothing is in flight any more, or requests another producer id if the epochs are used up."""
        producer = self._current
        if producer is None:
            return
        for queue in list(self._gaps):
            assert queue.sequences is not None
            if queue.sequences.resolve(producer):
                self._gaps.discard(queue)
                self._accumulator.answered(queue)
            elif queue.sequences.needs_producer_id(producer):
                self._current = None

    def step(self, now_ms: int, is_flushed: Callable[[], bool]) -> int:
        """Requests a producer id if there is none and records need it."""
        if self._current is not None or self._asked or not self._accumulator.has_incomplete():
            return FOREVER_MS
        if now_ms < self._not_before_ms:
            return self._not_before_ms - now_ms
        node = self._client.least_loaded_node(now_ms)
        if node is None:
            return self._back_off_ms
        if not self._client.ready(node, now_ms):
            return self._client.poll_delay_ms(node, now_ms)
        self._client.send(node, INIT_PRODUCER_ID, InitProducerIdRequest(), now_ms, tag=self._changes)
        self._asked = True
        return FOREVER_MS

    def answered(self, response: ClientResponse, now_ms: int) -> KafkaSinkError | None:
        if response.tag != self._changes:
            return None
        self._asked = False
        self._not_before_ms = now_ms + self._back_off_ms
        if isinstance(response.error, UnsupportedVersionError):
            # Time does not cure this. Java's producer ends too (TxnRequestHandler.onComplete).
            text = (
                f"{response.error.message}: it does not provide producer ids, which idempotence requires; {WITHOUT_IDEMPOTENCE}"
            )
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
        if action_for(body.error_code, idempotent=True) in (Action.RETRY, Action.LATER):
            self._ask_again(response, name, now_ms)
            return None
        is_denied = body.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        since_2_8 = "; from Kafka 2.8 on, Write permission on any topic is enough; or" if is_denied else ";"
        more = f"{since_2_8} {WITHOUT_IDEMPOTENCE}"
        return self._rights().error(
            f"the broker rejected InitProducerId: {name}", ApiKey.INIT_PRODUCER_ID, body.error_code, more=more
        )

    def _ask_again(self, response: ClientResponse, error: str, now_ms: int) -> None:
        self._last_error = f"InitProducerId at broker {response.node_id}: {error}"
        lasts = self._quiet_until_ms is not None and now_ms >= self._quiet_until_ms
        if lasts or self._quiet_until_ms is None:
            self._quiet_until_ms = now_ms + WARN_EVERY_MS
        logger.log(logging.WARNING if lasts else logging.INFO, "%s", self._last_error)
