"""Spark's names of types, and the casts to use, in errors that name Arrow's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import types as t

from spark_kafka_sink.errors import SchemaError
from spark_kafka_sink.formats.nodes import Misfit
from spark_kafka_sink.spark.plan.schema_casts import misfit_remedy
from spark_kafka_sink.spark.schema import SinkSchema

WholeType = Callable[[t.DataType], pa.DataType | None]
"""Returns the Arrow type of a column, as errors name it."""

_BEFORE = r"(\bcolumn |\bno type for |\bmap are )"
_ADVICE = re.compile(r": (?:use|cast it) .*")


@contextmanager
def in_sparks_words(schema: t.StructType, arrow: WholeType, columns: SinkSchema | None) -> Iterator[None]:
    """Raises a SchemaError of the block again in Spark's words: columns are `int` in place of `int32`, with the cast to use.

    Args:
        schema: the DataFrame's columns.
        arrow: the Arrow types that the error may name.
        columns: the record's columns, which refer to those of `schema`; None if they are not known.
    """
    try:
        yield
    except SchemaError as error:
        kinds = {str(found): kind for kind in _types(schema) if (found := arrow(kind)) is not None}
        facts, told = dict(error.facts), error.message
        if "misfits" in facts:
            names = _names(schema, columns, facts.get("part"))
            misfits = [(one, _with_remedy(Misfit(*one), kinds, names)) for one in facts["misfits"]]
            facts["misfits"] = tuple((new.path, new.column, new.schema, new.reason) for _, new in misfits)
            for old, new in misfits:
                told = told.replace(f"\n  {Misfit(*old)}", f"\n  {new}", 1)
        # The longest first: the name of a struct begins like others.
        known = "|".join(map(re.escape, sorted(kinds, key=len, reverse=True)))
        if known:
            told = re.sub(rf"{_BEFORE}({known})(?=[,:])", lambda found: found[1] + kinds[found[2]].simpleString(), told)
        raise type(error)(told, **facts) from None


def _with_remedy(misfit: Misfit, kinds: Mapping[str, t.DataType], names: Mapping[str, str]) -> Misfit:
    """Returns a misfit with Spark's name of the column's type, and with what to do in place of advice in Arrow's words."""
    kind = kinds.get(misfit.column)
    if kind is None:
        return misfit
    remedy = misfit_remedy(misfit.path, kind, misfit.schema, names.get(misfit.path))
    reason = misfit.reason if remedy is None else f"{_ADVICE.sub('', misfit.reason)}; {remedy}"
    return replace(misfit, column=kind.simpleString(), reason=reason)


def _names(schema: t.StructType, columns: SinkSchema | None, part: object) -> Mapping[str, str]:
    """Returns the names of the DataFrame's columns by the paths that errors about a part have for them."""
    place = None if columns is None else columns.key if part == "key" else columns.value
    if place is None:
        return {}
    if isinstance(place, int):
        return {"": schema.fields[place].name}
    return {schema.fields[one].name: schema.fields[one].name for one in place.places}


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
