"""State that the steps of `check` share: the settings, the connection, and the findings of earlier steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.connection_probe import HostPort, ProbeResult
from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.channel import address_text
from spark_kafka_sink.options.sink_options import SinkOptions
from spark_kafka_sink.protocol.apis.metadata import MetadataResponseTopic
from spark_kafka_sink.spark.driver.checks.report import CheckLine

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_kafka_sink.spark.schema import SinkSchema

_SHARE: Final = 0.3
"""Share of the whole time that one wait may take, so that a hanging broker leaves time for the other checks."""

_TRIES: Final = 3
"""Number of brokers that one wait can try if a firewall drops their packets."""


class SkippedError(Exception):
    """A step cannot be done, because an earlier one failed."""


@dataclass(slots=True)
class CheckContext:
    """The state of one check.

    Attributes:
        options: the sink's settings.
        timeout_s: the time for everything.
        deadline: on time.monotonic's clock.
        schema: the columns of the DataFrame that are written; None without a DataFrame, or if they do not fit.
        dataframe: all columns of the DataFrame, to which `schema` refers; None without one.
        client: the connection to the cluster.
        probed: the connections that were tried, by host and port.
        nodes: the brokers that answer, by id.
        versions: the API versions of each broker that answers.
        login_error: why the login failed.
        topic: the topic as brokers describe it.
        configs: the topic's configs; None if they are not known.
    """

    options: SinkOptions
    timeout_s: float
    deadline: float
    client: ClusterClient
    schema: SinkSchema | None = None
    dataframe: StructType | None = None
    probed: dict[HostPort, ProbeResult] = field(default_factory=dict)
    nodes: Mapping[int, Node] = field(default_factory=dict)
    versions: list[NodeApiVersions] = field(default_factory=list)
    login_error: AuthenticationError | None = None
    topic: MetadataResponseTopic | None = None
    configs: Mapping[str, str] | None = None

    def ask_only(self, servers: Iterable[HostPort]) -> None:
        """Goes on with these bootstrap servers. The others would only take the time of the other checks."""
        config = self.client.config
        self.client.close()
        self.client = ClusterClient(replace(config, bootstrap_servers=tuple(address_text(*each) for each in servers)))

    def soon(self) -> float:
        """Returns the deadline of one wait."""
        return min(self.deadline, time.monotonic() + _SHARE * self.timeout_s)

    @property
    def node_id(self) -> int:
        """A broker that answers. Raises SkippedError if there is none."""
        if not self.nodes:
            raise SkippedError("no broker answers requests")
        return next(iter(self.nodes))


Step = Callable[[CheckContext], Iterable[CheckLine]]


def client_for(options: SinkOptions, timeout_s: float) -> ClusterClient:
    """Returns a client that gives up on a broker within a share of the time."""
    at_most_ms = max(100, round(_SHARE * timeout_s * 1000))
    setup_ms = max(100, at_most_ms // _TRIES)
    config = options.producer
    quick = replace(
        config,
        key_serializer=None,
        value_serializer=None,
        interceptor_classes=(),
        partitioner_class=None,
        request_timeout_ms=min(config.request_timeout_ms, at_most_ms),
        connection_setup_timeout_ms=min(config.connection_setup_timeout_ms, setup_ms),
        connection_setup_timeout_max_ms=min(config.connection_setup_timeout_max_ms, setup_ms),
    )
    return ClusterClient(quick)
