"""Driver and executors with different versions of this package: the error comes before anything else is unpickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakValueDictionary

import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import BinaryType, StructField, StructType

import spark_kafka_sink as sks
from spark_kafka_sink import installation
from spark_kafka_sink.errors import InstallationError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.installation import SameVersion
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.driver.publish import ArrowTask
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.plan.data_source import KafkaSinkDataSource, reporting_to
from spark_kafka_sink.spark.schema import SinkSchema

OPTIONS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
SCHEMA = StructType([StructField("value", BinaryType())])
SERIALIZER: Any = cast("Any", CloudPickleSerializer)()

SENT: dict[str, Callable[[], Any]] = {
    "format's writer": lambda: KafkaSinkDataSource(dict(OPTIONS)).writer(SCHEMA, False),
    "format's stream writer": lambda: KafkaSinkDataSource(dict(OPTIONS)).streamWriter(SCHEMA, False),
    "publish's task": lambda: ArrowTask(SinkSchema(value=0), sink_options(OPTIONS), Feed(), MicroBatch("query", 7)),
    "partition_writer": lambda: sks.partition_writer(OPTIONS),
    "foreach_batch": lambda: sks.foreach_batch(OPTIONS),
}


@pytest.mark.parametrize("what", SENT)
def test_the_same_version_gets_what_was_sent(what: str) -> None:
    sent = SENT[what]()
    received = SERIALIZER.loads(SERIALIZER.dumps(sent))
    assert type(received) is type(sent)
    assert str(received.__getstate__()) == str(sent.__getstate__())


@pytest.mark.parametrize("what", SENT)
def test_another_version_raises_an_error_that_names_both(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    sent = SERIALIZER.dumps(SENT[what]())
    monkeypatch.setattr(installation, "__version__", "9.9")
    with pytest.raises(InstallationError) as error:
        SERIALIZER.loads(sent)
    assert f"the driver has spark-kafka-sink {sks.__version__}, and " in error.value.message
    assert error.value.message.endswith(" has 9.9: install the same version on the driver and on every executor")
    assert error.value.facts == {"driver": sks.__version__, "executor": "9.9"}
    assert "\n" not in str(error.value)


def never() -> None:
    raise AssertionError("the state was unpickled before the versions were compared")


class Unreadable:
    """Unpickles in no version."""

    def __reduce__(self) -> Any:
        return never, ()


@dataclass(frozen=True, slots=True)
class Sent(SameVersion):
    state: object


def test_the_check_comes_before_the_state_and_before_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = pickle.dumps(Sent(Unreadable()))
    with pytest.raises(AssertionError):
        pickle.loads(sent)
    monkeypatch.setattr(installation, "__version__", "9.9")
    for received in (sent, sent.replace(b"test_installation", b"test_unknownmodul")):
        with pytest.raises(InstallationError):
            pickle.loads(received)


def test_a_registered_source_is_refused_by_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = SERIALIZER.dumps(reporting_to(Feed()))
    # Otherwise unpickling returns the class itself, because this process has it.
    monkeypatch.setattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", WeakValueDictionary())
    received = SERIALIZER.loads(sent)
    assert received(dict(OPTIONS)).writer(SCHEMA, False) is not None
    monkeypatch.setattr(installation, "__version__", "9.9")
    for make in (received(dict(OPTIONS)).writer, received(dict(OPTIONS)).streamWriter):
        with pytest.raises(InstallationError, match=rf"the driver has spark-kafka-sink {sks.__version__}, and .* has 9\.9"):
            make(SCHEMA, False)
    assert KafkaSinkDataSource(dict(OPTIONS)).writer(SCHEMA, False) is not None
