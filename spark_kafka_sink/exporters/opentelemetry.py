"""Exports the metrics of a driver through OpenTelemetry's API. The program's own SDK reads and sends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.exporters.metric_families import FAMILIES, MOST_PARTITIONS, Family, Kind, OneSnapshot, SnapshotReader
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from spark_kafka_sink.version import __version__

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

_SCOPE: Final = "spark_kafka_sink"
_PREFIX: Final = "kafka_sink."

# Names of OpenTelemetry's semantic conventions for messaging and errors, where there are such.
ATTRIBUTES: Final[Mapping[str, str]] = {
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "error": "error.type",
    "reason": "kafka_sink.bad_row.reason",
    "outcome": "kafka_sink.transaction.outcome",
    "query": "kafka_sink.query.id",
    "query_name": "kafka_sink.query.name",
    "quantile": "kafka_sink.quantile",
}
"""By label of a family."""
_SYSTEM: Final[Mapping[str, str]] = {"messaging.system": "kafka"}

_UCUM: Final[Mapping[str, str]] = {"seconds": "s", "bytes": "By"}


def instrument_name(family: Family) -> str:
    """Returns the name as OpenTelemetry has it: without unit and `_total`, which an exporter to Prometheus adds."""
    return _PREFIX + family.name


def instrument_unit(family: Family) -> str:
    """Returns the unit in UCUM's notation, where a count of things is an annotation in braces."""
    return _UCUM.get(family.unit) or "{" + family.unit.replace(" ", "_") + "}"


def export_opentelemetry(
    metrics: DeliveryMetrics,
    meter_provider: MeterProvider | None = None,
    *,
    most_partitions: int = MOST_PARTITIONS,
) -> None:
    """Exports the metrics of this driver by instruments of OpenTelemetry: see [OpenTelemetry](monitoring.md#opentelemetry).

    A second call with the same provider replaces `metrics`. If deliveries are not counted, as on Spark Connect, one warning is
    logged and nothing is exported.

    Args:
        metrics: The result of `register(spark)`.
        meter_provider: The provider; None for the global one, also if the program sets it later.
        most_partitions: The most topic-partitions with their own series. Further ones become sums of their topics, and further
            topics one sum under the topic "other".

    Raises:
        InstallationError: opentelemetry-api is missing.
    """
    check_extra("opentelemetry.metrics", "export_opentelemetry()")
    reader = OneSnapshot(SnapshotReader(metrics, most_partitions, "OpenTelemetry"))
    with _lock:
        if meter_provider in _instruments:
            _instruments[meter_provider].reader = reader
        else:
            _instruments[meter_provider] = _Instruments(meter_provider, reader)


class _Instruments:
    """The instruments of a meter provider, and the driver that they observe.

    An instrument cannot be removed again, and a second one of the same name is ignored. A histogram would need a call for each
    record batch, of 20 us, so quantiles are gauges. Threads: the provider's readers call the callbacks in threads of their own,
    one callback for each instrument.

    Attributes:
        reader: Reads the driver.
    """

    def __init__(self, provider: MeterProvider | None, reader: OneSnapshot) -> None:
        """provider: None for the global one."""
        from opentelemetry.metrics import get_meter

        meter = get_meter(_SCOPE, __version__, provider)
        self.reader = reader
        for family in FAMILIES:
            create = meter.create_observable_counter if family.kind is Kind.COUNTER else meter.create_observable_gauge
            create(instrument_name(family), [self._callback(family)], instrument_unit(family), family.text)

    def _callback(self, family: Family) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        names = [ATTRIBUTES[label] for label in family.labels]

        def observed(options: CallbackOptions) -> Iterator[Observation]:
            shot = self.reader.read(family.name)
            if shot is None:
                return
            for labels, value in family.values(shot):
                attributes = {**_SYSTEM, **dict(zip(names, labels, strict=True))}
                yield Observation(value if family.unit == "seconds" else int(value), attributes)

        return observed


_lock = threading.Lock()
_instruments: dict[MeterProvider | None, _Instruments] = {}
