"""Every cast and expression that an error suggests is executed, and gives the rows that its text promises."""

from __future__ import annotations

import datetime
import itertools
import re
from decimal import Decimal
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import spark_kafka_sink as sks
from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.options.sink_options import sink_options
from spark_kafka_sink.spark.driver.partition_writer import batches_of_rows
from spark_kafka_sink.spark.plan.schema_casts import misfit_remedy
from spark_kafka_sink.spark.plugin_checks import serializers_by_column
from spark_kafka_sink.spark.schema import sink_schema
from tests.spark.session import setting

pytestmark = pytest.mark.spark

DAY = datetime.datetime(2026, 1, 1)
NOON = "timestamp_ntz '2026-01-01 12:00:00'"
SECONDS = 1_767_225_600  # of DAY in UTC
STAMP = f"timestamp_seconds({SECONDS})"
HEADER = [("k", b"v")]
NAMED = [("name", b"v")]
JSON_MAP = [("name", b'{"a":"b"}')]


def record(column: str, expression: str, **options: str) -> str:
    """Returns what the error about a column of the record suggests."""
    spark = SparkSession.active()
    others = [f"'' AS {name}" for name in ("value", "topic") if name != column]
    df = spark.range(1).selectExpr(f"{expression} AS {column}", *others)
    given = {"kafka.bootstrap.servers": "localhost:9092", **{f"kafka.{name}": value for name, value in options.items()}}
    with pytest.raises(SchemaError) as caught:
        sink_schema(df.schema, None, serializers_by_column(sink_options(given).producer))
    return caught.value.message.partition("; use ")[2]


# The column, and its expression; then the values that come of each way that is suggested.
RECORDS: list[tuple[str, str, list[Any]]] = [
    ("value", "5", ["5"]),
    ("value", "date '2026-01-01'", ["2026-01-01"]),
    ("value", NOON, ["2026-01-01 12:00:00"]),
    ("value", "named_struct('a', 1)", ['{"a":1}']),
    ("key", "map('a', 1)", ['{"a":1}']),
    ("key", "array('a')", ['["a"]']),
    ("key", "parse_json('{}')", ["{}"]),
    ("topic", "binary('t')", ["t"]),
    ("topic", "5", ["5"]),
    ("partition", "bigint(1)", [1]),
    ("partition", "'1'", [1]),
    ("partition", "date '2026-01-01'", []),
    ("timestamp", "date '2026-01-01'", [SECONDS]),
    ("timestamp", "timestamp_ntz '2026-01-01 00:00:00'", [SECONDS]),
    ("timestamp", "parse_json('\"2026-01-01 00:00:00\"')", [SECONDS]),
    ("timestamp", "'2026-01-01'", [SECONDS]),
    ("timestamp", str(SECONDS), [SECONDS]),  # 32 bits have no milliseconds of today
    ("timestamp", f"double({SECONDS})", [SECONDS, SECONDS]),
    ("timestamp", f"decimal({SECONDS})", [SECONDS, SECONDS]),
    ("timestamp", "true", []),
    ("timestamp", "map('a', 1)", []),
    ("headers", "map('k', 'v')", [HEADER]),
    ("headers", "map('k', binary('v'))", [HEADER]),
    ("headers", "map('k', 5)", [[("k", b"5")]]),
    ("headers", "map(5, map('a', 'b'))", [[("5", b'{"a":"b"}')]]),
    ("headers", "'v'", [NAMED]),
    ("headers", "binary('v')", [NAMED]),
    ("headers", "5", [[("name", b"5")]]),
    ("headers", "named_struct('a', 'b')", [JSON_MAP]),
    ("headers", "array()", [[]]),
    ("headers", "array('v')", [NAMED]),
    ("headers", "array(binary('v'))", [NAMED]),
    ("headers", "array(map('a', 'b'))", [JSON_MAP]),
    ("headers", "array(named_struct('a', 'b'))", [JSON_MAP]),
    ("headers", "array(named_struct('key', 'k', 'value', 'v'))", [HEADER]),
    ("headers", "array(named_struct('value', binary('v'), 'key', 'k'))", [HEADER]),
    ("headers", "array(named_struct('value', 'v', 'key', 'k'))", [HEADER]),
    ("headers", "array(named_struct('VALUE', 'v', 'name', 'k'))", [HEADER]),
    ("headers", "array(named_struct('content', binary('v'), 'a name', 'k'))", [HEADER]),
    ("headers", "array(named_struct('k', 'k', 'v', 'v'))", [HEADER]),
    ("headers", "array(named_struct('key', binary('k'), 'value', 5))", [[("k", b"5")]]),
]
SERIALIZED: list[tuple[str, str, list[Any]]] = [
    ("long", "'5'", [5]),
    ("long", STAMP, [SECONDS * 1000, SECONDS]),
    ("int", STAMP, []),
    ("boolean", "'true'", [True]),
    ("string", "named_struct('a', 1)", ['{"a":1}']),
    ("bytes", "5", [b"5"]),
    ("bytebuffer", "array(1)", [b"[1]"]),
    ("list", "array('5', '6')", [[5, 6]]),
    ("list", "5", [[5]]),
    ("json", "interval '5' day", ["INTERVAL '5' DAY"]),
]
INNER = {"default.list.value.serde.inner": "long"}
# A field's type in the words of its schema, the column, and the values of each way.
FIELDS: list[tuple[str, str, list[Any]]] = [
    ("int", "5.7D", [5]),
    ("long", "'5'", [5]),
    ("int", "date '1970-01-06'", [5]),
    ("long", STAMP, [SECONDS, SECONDS * 1000, SECONDS * 1_000_000]),
    ("int (date)", "5L", [datetime.date(1970, 1, 6)]),
    ("int (date)", NOON, [datetime.date(2026, 1, 1)]),
    ("long (timestamp-millis)", "5", [5.0, 0.005, 0.000005]),
    ("long (timestamp-millis)", "'2026-01-01'", [SECONDS]),
    ("long (local-timestamp-millis)", "'2026-01-01'", [DAY]),
    ("bytes (decimal(10, 2))", "5.555D", [Decimal("5.56")]),
    ("fixed(1)", "'5'", [b"5"]),
    ("string", "map('a', 1)", ['{"a":1}']),
    ("number", "'5.5'", [5.5]),
    ("string, format date-time", "date '2026-01-01'", [SECONDS]),
]


@pytest.mark.skipif(tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3), reason="Spark has no nanoseconds yet")
def test_a_type_that_pyspark_lacks_is_named_with_its_column_and_cast(spark: SparkSession) -> None:
    with setting(spark, "spark.sql.timestampNanosTypes.enabled", "true"):
        df = spark.sql("SELECT '1' AS value, cast(timestamp_ntz '2026-01-01 00:00:00.123456789' AS timestamp_ntz(9)) AS `a t`")
        told = (
            r"column a t: is timestamp_ntz\(9\), which PySpark .* cannot read; drop it, or use (.*), which cuts off nanoseconds"
        )
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.max.block.ms": "1"}
        for write in (lambda: sks.publish(df, options=options), lambda: sks.foreach_batch(options)(df, 0)):
            with pytest.raises(SchemaError, match=told) as caught:
                write()
        assert re.search(told, " ".join(str(sks.check(options, df)).split()))
        (cast,) = re.findall(told, caught.value.message)
        assert _values(df.selectExpr(cast)) == [datetime.datetime(2026, 1, 1, microsecond=123456)]
        with pytest.raises(PySparkException) as raw:
            df.write.format("kafka_sink").options(**options).mode("append").save()
        assert "Drop it or cast it" in str(sks.explain(raw.value))


def test_what_an_error_suggests_gives_the_rows_that_it_promises(spark: SparkSession) -> None:
    suggested = [
        *((column, column, expression, record(column, expression), rows) for column, expression, rows in RECORDS),
        *(
            (name, "value", expression, record("value", expression, **{"value.serializer": name}, **INNER), rows)
            for name, expression, rows in SERIALIZED
        ),
        *((name, "value", expression, field(spark, name, expression), rows) for name, expression, rows in FIELDS),
    ]
    # One query, as each takes a fifth of a second.
    ways = [
        [f"(SELECT {way} FROM (SELECT {expression} AS {column}))" for way in _ways(told)]
        for _, column, expression, told, _ in suggested
    ]
    made = spark.sql("SELECT " + ", ".join(f"{way} AS c{number}" for number, way in enumerate(itertools.chain(*ways))))
    values = iter(_values(made))
    found = [(of, expression, [next(values) for _ in way]) for (of, _, expression, *_), way in zip(suggested, ways, strict=True)]
    assert found == [(of, expression, rows) for of, _, expression, _, rows in suggested]


def test_partition_writer_suggests_the_same_for_rows_of_these_types(spark: SparkSession) -> None:
    records = [(column, expression) for column, expression, _ in RECORDS if column != "headers"]
    if pyspark.__version__.startswith("4.0."):  # whose Rows do not show that this is a variant
        records = [each for each in records if each[0] != "timestamp" or "parse_json" not in each[1]]
    made = spark.sql("SELECT " + ", ".join(f"{expression} AS c{number}" for number, (_, expression) in enumerate(records)))
    rows = [
        (each, Row(**{"value": "", "topic": "t", each[0]: value})) for each, value in zip(records, made.collect()[0], strict=True)
    ]
    told = {each: _refused(row) for each, row in rows}
    # Python's int and datetime do not show these types, and bytes are taken as text.
    zoneless = ("timestamp", "timestamp_ntz '2026-01-01 00:00:00'")
    accepted = [("topic", "binary('t')"), ("partition", "bigint(1)"), zoneless, ("timestamp", str(SECONDS))]
    assert told == {each: None if each in accepted else record(*each) for each in records}


def _refused(row: Row) -> str | None:
    """Returns what `partition_writer` suggests; None if it accepts the row."""
    try:
        list(batches_of_rows([row], None))
    except SchemaError as error:
        return error.message.partition("; use ")[2]
    return None


def field(spark: SparkSession, kind: str, expression: str) -> str:
    """Returns what the error about a field of a schema suggests."""
    column = spark.range(1).selectExpr(f"{expression} AS value").schema[0]
    return (misfit_remedy("value", column.dataType, kind, "value") or "").removeprefix("use ")


def _ways(told: str) -> list[str]:
    text = re.sub(", which .*| for milliseconds$", "", told)
    return [way for way in re.split(r" for \w+, or |(?<=\)), (?=\w+\()| or (?=\w+\()", text) if way]


def _values(made: DataFrame) -> list[Any]:
    """Returns the values of the only row; of timestamps, seconds since the epoch."""
    columns = [
        F.col(each.name).cast("double") if each.dataType.typeName() == "timestamp" else F.col(each.name) for each in made.schema
    ]
    return [_plain(value) for value in made.select(columns).collect()[0]]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [(each.key, bytes(each.value)) if hasattr(each, "key") else each for each in value]
    return bytes(value) if isinstance(value, bytearray) else value
