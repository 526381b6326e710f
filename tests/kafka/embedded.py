"""Embedded brokers in place of Kafka's, with the same settings. A test must not see a difference."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.metadata import ApiVersionsRequest, ApiVersionsResponse
from tests.kafka.brokers import Brokers
from tests.kafka.cluster import data_folder
from tests.kafka.guardian import Guardian
from tests.kafka.versions import has_default_replication
from tests.waiting import DEADLINE_S


class EmbeddedKafka(Brokers):
    """Embedded brokers that run from the constructor to `stop()` or the end of a `with`.

    If the process dies, a guardian removes their files."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        in_memory: bool = False,
        advertised: Mapping[int, str] | None = None,
        transaction_version: int | None = None,
        like: str | None = None,
    ) -> None:
        """in_memory: there are no files to look into. advertised: node id -> "host:port" that clients are told: a proxy's.
        like: the release of Kafka that clients see, as EmbeddedBroker has it."""
        self._data = None if in_memory else _Data()
        folder = self._data.folder if self._data is not None else None
        self.broker = EmbeddedBroker(
            brokers,
            config=replace(settings(brokers, folder), transaction_version=transaction_version),
            like=like,
            advertised=_addresses(advertised or {}),
        )
        if like is not None and not has_default_replication(like):
            self.default_replication = min(3, brokers)
        self._down: set[int] = set()
        self._paused: dict[int, Fault] = {}
        try:
            self.broker.start()
        except BaseException:
            self.stop()
            raise
        super().__init__(self.broker.bootstrap_servers, self.broker.direct_servers)

    @property
    def broker_ids(self) -> list[int]:
        return self.broker.broker_ids

    def address(self, broker_id: int) -> str:
        return self.broker.address(broker_id)

    def log_dir(self, broker_id: int) -> Path:
        """Returns the same folder for all brokers: a partition's log exists once, whichever broker leads it."""
        if self._data is None:
            raise FileNotFoundError("these brokers keep everything in memory")
        return self._data.folder

    def kill(self, broker_id: int) -> None:
        self.broker.kill(broker_id)
        self._down.add(broker_id)

    def restart(self, broker_id: int) -> None:
        self.broker.restart(broker_id)
        self._down.discard(broker_id)
        # It is there; but a connection of our own, which broke, may fail once more (librdkafka's _TRANSPORT).
        self.wait_for(lambda: broker_id in self.metadata().brokers, f"broker {broker_id} back after a restart", DEADLINE_S)

    def pause(self, broker_id: int) -> None:
        self._paused[broker_id] = self.broker.faults.unreachable(broker_id, black_hole=True)

    def resume(self, broker_id: int) -> None:
        self._paused.pop(broker_id).remove()

    def heal(self) -> None:
        for broker_id in list(self._paused):
            self.resume(broker_id)
        for broker_id in list(self._down):
            self.restart(broker_id)

    def stop(self) -> None:
        self.broker.stop()
        if self._data is not None:
            self._data.remove()


class _Data:
    """A folder that a guardian removes if this process dies."""

    def __init__(self) -> None:
        self.folder = data_folder()
        self._guardian = Guardian()
        self._guardian.watch_folder(self.folder)

    def remove(self) -> None:
        try:
            shutil.rmtree(self.folder)
        finally:
            self._guardian.close()


def settings(brokers: int, folder: Path | None) -> BrokerConfig:
    """Returns the settings of real brokers from `broker.settings`."""
    replicas = min(3, brokers)
    return BrokerConfig(
        data_dir=folder,
        auto_create_topics_enable=False,
        default_replication_factor=replicas,
        topic_defaults={"min.insync.replicas": str(max(1, replicas - 1))},
        offsets_topic_num_partitions=4,
        transaction_state_log_num_partitions=4,
    )


def _addresses(texts: Mapping[int, str]) -> dict[int, tuple[str, int]]:
    parted = {node: text.rpartition(":") for node, text in texts.items()}
    return {node: (host, int(port)) for node, (host, _, port) in parted.items()}


# In the middle of a rolling upgrade


def _of_3_7(_: ApiVersionsRequest, answer: ApiVersionsResponse) -> ApiVersionsResponse:
    keys = [replace(each, max_version=3) if each.api_key == ApiKey.END_TXN else each for each in answer.api_keys]
    return replace(answer, api_keys=tuple(keys))


def hide(kafka: EmbeddedKafka, *apis: ApiKey) -> None:
    """Makes brokers that do not have some APIs, as services leave them out. For connections that are made afterwards."""

    def without(_: ApiVersionsRequest, answer: ApiVersionsResponse) -> ApiVersionsResponse:
        return replace(answer, api_keys=tuple(each for each in answer.api_keys if each.api_key not in apis))

    kafka.broker.faults.alter(ApiKey.API_VERSIONS, without, times=None)


@contextmanager
def mixed_kafka(brokers: int = 2) -> Iterator[EmbeddedKafka]:
    """Yields brokers of Kafka 3.9, of which the second speaks EndTxn no later than 3.7 does."""
    with (
        EmbeddedKafka(brokers, in_memory=True, like="3.9") as kafka,
        kafka.broker.faults.alter(ApiKey.API_VERSIONS, _of_3_7, broker=2, times=None),
    ):
        yield kafka
