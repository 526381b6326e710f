"""Spark's names of types, in errors that name Arrow's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError

WholeType = Callable[[t.DataType], pa.DataType | None]
"""Returns the Arrow type of a column, as errors name it."""

_BEFORE = r"(\bcolumn |\bno type for |\bmap are )"


@contextmanager
def in_sparks_words(schema: t.StructType, arrow: WholeType) -> Iterator[None]:
    """Raises a SchemaError of the block again, with Spark's names of the columns' types: `int` in place of `int32`.

    Args:
        schema: the DataFrame's columns.
        arrow: the Arrow types that the error may name.
    """
    try:
        yield
    except SchemaError as error:
        names = {str(found): kind.simpleString() for kind in _types(schema) if (found := arrow(kind)) is not None}

        def sparks(text: str) -> str:
            return names.get(text, text)

        # The longest first: the name of a struct begins like others.
        known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        told = re.sub(rf"{_BEFORE}({known})(?=[,:])", lambda found: found[1] + sparks(found[2]), error.message)
        facts = dict(error.facts)
        if "misfits" in facts:
            facts["misfits"] = tuple((path, sparks(column), *rest) for path, column, *rest in facts["misfits"])
        raise type(error)(told, **facts) from None


def _types(kind: t.DataType) -> Iterator[t.DataType]:
    """Yields a type and all types inside it."""
    yield kind
    match kind:
        case t.StructType():
            inner = [field.dataType for field in kind.fields]
        case t.ArrayType():
            inner = [kind.elementType]
        case t.MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    for one in inner:
        yield from _types(one)
