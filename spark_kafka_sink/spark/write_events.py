"""Events of writes, for exporters: a write began, was committed, or failed, and its destination: brokers, topic, fields, trace.

Processes of Spark's that plan and commit send them to the driver program only if an exporter there wants it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as t

from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.installation import SameVersion
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.messages import DeliveryMessage
from spark_kafka_sink.spark.query_totals import BATCH_JOBS, UNKNOWN

if TYPE_CHECKING:
    from spark_kafka_sink.options.sink_options import SinkOptions
    from spark_kafka_sink.spark.schema import SinkSchema


@dataclass(frozen=True, slots=True)
class Field(SameVersion):
    """A field of a record.

    Attributes:
        name: Its name.
        type: Its type, in the words of Spark or of the schema's format.
        text: Its comment; empty if it has none.
        fields: Those of a struct.
    """

    name: str
    type: str
    text: str = ""
    fields: tuple[Field, ...] = ()

    @staticmethod
    def from_list(values: Sequence[Any]) -> Field:
        """Reads `astuple` of a field, also from JSON. Raises ValueError or TypeError for other values."""
        name, kind, text, fields = values
        return Field(str(name), str(kind), str(text), tuple(Field.from_list(one) for one in fields))


@dataclass(frozen=True, slots=True)
class Destination(SameVersion):
    """The place that the rows of a write go to. It holds no secret.

    Attributes:
        servers: The bootstrap servers, "host:port" each.
        topic: The topic of all rows; None if a column names it.
        letters: The dead-letter topic; None if there is none.
        fields: The columns that are written, or the fields of the value's schema.
        context: The traceparent of the batch's span, if it is in the headers of the batch's records.
        parent: The traceparent of the span above that one.
    """

    servers: tuple[str, ...]
    topic: str | None = None
    letters: str | None = None
    fields: tuple[Field, ...] = ()
    context: str = ""
    parent: str = ""

    @staticmethod
    def from_list(values: Sequence[Any]) -> Destination:
        """Reads `astuple` of a destination, also from JSON. Raises ValueError or TypeError for other values."""
        servers, topic, letters, fields, context, parent = values
        made = tuple(Field.from_list(one) for one in fields)
        return Destination(tuple(map(str, servers)), _text(topic), _text(letters), made, str(context), str(parent))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def destination(options: SinkOptions, columns: SinkSchema, schema: t.StructType) -> Destination:
    """Returns the destination of a write.

    Its fields are those of the value's schema, if a registry has it. Otherwise they are the columns that are written, as
    OpenLineage's agent for Spark has them for Spark's own Kafka sink.

    Args:
        options: The sink's options, with the schemas of a registry.
        columns: The record's columns.
        schema: The DataFrame's columns, to which `columns` refers.
    """
    found = schema_fields(getattr(options.producer.value_serializer, "schema", None))
    fields = found or spark_fields(schema.fields[place] for place in sorted(columns.places()))
    servers, trace = options.producer.bootstrap_servers, options.record.trace
    return Destination(servers, options.topic, options.errors.topic, fields, trace.context, trace.parent)


def spark_fields(fields: Iterable[t.StructField]) -> tuple[Field, ...]:
    """Returns columns of a DataFrame as fields."""
    return tuple(
        Field(
            one.name,
            "struct" if isinstance(one.dataType, t.StructType) else one.dataType.simpleString(),
            str((one.metadata or {}).get("comment", "")),
            spark_fields(one.dataType.fields) if isinstance(one.dataType, t.StructType) else (),
        )
        for one in fields
    )


def schema_fields(schema: object) -> tuple[Field, ...]:
    """Returns the fields of an Avro record or a JSON object. Empty for anything else, such as Protobuf, and without a schema."""
    from spark_kafka_sink.formats.schema_serializer import ResolvedSchema  # 40 ms, and for writes only

    if not isinstance(schema, ResolvedSchema) or schema.format not in ("avro", "json-schema"):
        return ()
    try:
        found = json.loads(schema.text)
        return _avro(found) if schema.format == "avro" else _json(found)
    except (ValueError, KeyError, TypeError, AttributeError):  # whatever form the text has, the write goes on
        return ()


def _avro(found: Any) -> tuple[Field, ...]:
    if not isinstance(found, dict) or found.get("type") != "record":
        return ()
    return tuple(
        Field(str(one["name"]), _avro_type(one["type"]), str(one.get("doc", "")), _avro(_only(one["type"])))
        for one in found["fields"]
    )


def _only(kind: Any) -> Any:
    """Returns the type that may be null, or the type itself."""
    others = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    return others[0] if len(others) == 1 else kind


def _avro_type(kind: Any) -> str:
    if isinstance(kind, list):
        return "union<" + ",".join(map(_avro_type, kind)) + ">"
    if not isinstance(kind, dict):
        return str(kind)
    inner = kind.get("items", kind.get("values"))
    return str(kind.get("logicalType") or kind["type"]) + ("" if inner is None else f"<{_avro_type(inner)}>")


def _json(found: Any) -> tuple[Field, ...]:
    properties = found.get("properties") if isinstance(found, dict) else None
    if not isinstance(properties, dict):
        return ()
    return tuple(Field(name, _json_type(one), _json_text(one), _json(one)) for name, one in properties.items())


def _json_type(found: Any) -> str:
    kind = found.get("type", "any") if isinstance(found, dict) else "any"
    return "union<" + ",".join(map(str, kind)) + ">" if isinstance(kind, list) else str(kind)


def _json_text(found: Any) -> str:
    return str(found.get("description", "")) if isinstance(found, dict) else ""


logger = logging.getLogger(__name__)

WRITE: Final = b"W"
"""The kind of these messages."""

MOST_TASKS: Final = 1000
"""Of a batch. Each takes 80 bytes of a message. Of more, those that lasted longest are kept."""

MOST_FAILED: Final = 200
"""Queries with failed writes that are remembered."""


@dataclass(frozen=True, slots=True)
class TaskTime:
    """When a task ran, and what it wrote.

    Attributes:
        spark_partition: Number of the Spark partition.
        began: In seconds since the epoch.
        ended: In seconds since the epoch.
        records: Acknowledged records.
        bytes: Their size before compression.
        retries: Record batches that were sent again.
        errors: Record batches that a broker or the network rejected.
    """

    spark_partition: int
    began: float
    ended: float
    records: int = 0
    bytes: int = 0
    retries: int = 0
    errors: int = 0


def task_times(messages: Sequence[object]) -> tuple[TaskTime, ...]:
    """Returns the times of the finished tasks, by Spark partition, and at most MOST_TASKS of them."""
    found = []
    for one in messages:
        if isinstance(one, DeliveryMessage):
            report = one.report
            counts = (report.records, report.bytes, report.retries, sum(report.errors.values()))
            found.append(TaskTime(one.spark_partition, one.began, one.ended, *counts))
    if len(found) > MOST_TASKS:
        found = sorted(found, key=lambda one: one.began - one.ended)[:MOST_TASKS]
    return tuple(sorted(found, key=lambda one: one.spark_partition))


@dataclass(frozen=True, slots=True)
class WriteBegan:
    """A batch job was planned, or foreach_batch was called.

    Attributes:
        query_id: Spark's id of the query; of a batch job an id that begins with "job-".
        batch: Number of the micro-batch; 0 for a batch job.
        at: When, in seconds since the epoch.
        destination: Where its rows go.
    """

    query_id: str
    batch: int
    at: float
    destination: Destination


@dataclass(frozen=True, slots=True)
class WriteCommitted:
    """A micro-batch or batch job was committed.

    Attributes:
        batch: Its report.
        commit_began: When the commit began, in seconds since the epoch.
        tasks: Its tasks.
        destination: Where its rows went; None if that is not known.
    """

    batch: BatchReport
    commit_began: float
    tasks: tuple[TaskTime, ...] = ()
    destination: Destination | None = None


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """A micro-batch or batch job failed.

    Attributes:
        query_id: As of `WriteBegan`. Empty if it is not known.
        batch: Number of the micro-batch; 0 for a batch job.
        at: When, in seconds since the epoch.
        message: Why, without any secret or data of rows.
        is_interrupt: Whether the user stopped it.
        destination: Where its rows were to go; None if that is not known.
    """

    query_id: str
    batch: int
    at: float
    message: str
    is_interrupt: bool = False
    destination: Destination | None = None


WriteEvent = WriteBegan | WriteCommitted | WriteFailed


def event_to_bytes(event: WriteEvent) -> bytes:
    """Returns a line of JSON. The bytes of the batch's report follow, if it has one."""
    values: tuple[Any, ...]
    report = b""
    match event:
        case WriteBegan():
            values = "began", *astuple(event)
        case WriteFailed():
            values = "failed", *astuple(event)
        case WriteCommitted():
            where = None if event.destination is None else astuple(event.destination)
            values = "committed", event.commit_began, tuple(map(astuple, event.tasks)), where
            report = event.batch.to_bytes()
    return json.dumps(values, separators=(",", ":")).encode() + b"\n" + report


def _destination(values: Sequence[Any] | None) -> Destination | None:
    return None if values is None else Destination.from_list(values)


def event_from_bytes(data: bytes) -> WriteEvent:
    """Reads what `event_to_bytes` returns. Raises ValueError, KeyError or TypeError for other bytes."""
    line, _, report = data.partition(b"\n")
    kind, *values = json.loads(line)
    if kind == "began":
        query_id, batch, at, where = values
        return WriteBegan(str(query_id), int(batch), float(at), Destination.from_list(where))
    if kind == "failed":
        query_id, batch, at, message, is_interrupt, where = values
        return WriteFailed(str(query_id), int(batch), float(at), str(message), bool(is_interrupt), _destination(where))
    if kind != "committed":
        raise ValueError(f"the kind {kind!r} of an event is not known")
    commit_began, tasks, where = values
    times = tuple(TaskTime(int(task[0]), float(task[1]), float(task[2]), *map(int, task[3:])) for task in tasks)
    return WriteCommitted(BatchReport.from_bytes(report), float(commit_began), times, _destination(where))


WriteListener = Callable[[WriteEvent], object]


class WriteListeners:
    """Hands events to the exporters of a driver program, and counts failed writes.

    Threads: any may add, remove and tell, under the lock. Listeners are called without it, and must not wait.
    """

    def __init__(self) -> None:
        self._failed: dict[str, int] = {}
        self._lock = threading.Lock()
        self._listeners: tuple[WriteListener, ...] = ()
        self._warned: set[int] = set()

    @property
    def is_wanted(self) -> bool:
        """Whether there is a listener."""
        return bool(self._listeners)

    def add(self, listener: WriteListener) -> None:
        """Has `listener` called with each event from now on."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def remove(self, listener: WriteListener) -> None:
        """Ends the calls of a listener. One that was not added is ignored."""
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != listener)

    def tell(self, event: WriteEvent) -> None:
        """Calls all listeners. It never raises: rows matter more."""
        if isinstance(event, WriteFailed) and not event.is_interrupt:
            self._count(event.query_id)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:
                if id(listener) not in self._warned:
                    self._warned.add(id(listener))
                    logger.warning("an exporter raised %s; further errors of it are not logged: %s", type(error).__name__, error)

    def _count(self, query_id: str) -> None:
        name = BATCH_JOBS if is_job(query_id) else query_id or UNKNOWN
        with self._lock:
            self._failed[name] = self._failed.pop(name, 0) + 1
            if len(self._failed) > MOST_FAILED:
                del self._failed[next(iter(self._failed))]

    def failed(self) -> dict[str, int]:
        """Returns the number of failed writes by query, of the queries that failed last; that of batch jobs is a sum."""
        with self._lock:
            return dict(self._failed)

    def take(self, content: bytes) -> None:
        """Takes a message. Raises ValueError, KeyError or TypeError."""
        self.tell(event_from_bytes(content))
