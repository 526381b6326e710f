"""The Arrow type of a column that Spark hands over: what its own to_arrow_type says, whose arguments change with each version."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as t

_PLAIN: dict[type[t.DataType], pa.DataType] = {
    t.NullType: pa.null(),
    t.StringType: pa.string(),
    t.BinaryType: pa.binary(),
    t.BooleanType: pa.bool_(),
    t.ByteType: pa.int8(),
    t.ShortType: pa.int16(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimestampType: pa.timestamp("us", "UTC"),  # of the session's zone really
    t.TimestampNTZType: pa.timestamp("us"),
    t.DayTimeIntervalType: pa.duration("us"),
}


def arrow_type(kind: t.DataType) -> pa.DataType | None:
    """None for a type that is no column of plain values in Arrow: variant, intervals of months, geometry, user-defined types."""
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        element = arrow_type(kind.elementType)
        return None if element is None else pa.list_(element)
    if isinstance(kind, t.MapType):
        key, value = arrow_type(kind.keyType), arrow_type(kind.valueType)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(kind, t.StructType):
        fields = [(field.name, arrow_type(field.dataType)) for field in kind.fields]
        return None if any(found is None for _, found in fields) else pa.struct(fields)
    if kind.typeName().startswith("time("):  # TimeType, from Spark 4.1 on
        return pa.time64("ns")
    return _PLAIN.get(type(kind))
