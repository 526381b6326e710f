"""The type of kernels, what does not fit a schema, and the values that kernels take in rows without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.records.parts import Part, Present

Kernel = Callable[[pa.Array, Present | None], Sequence[Part]]


class MisfitError(Exception):
    """A column's type does not fit the schema. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """One difference between a column and a schema. `column` and `schema` are their types in words, or `missing`."""

    path: str
    column: str
    schema: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: column {self.column}, schema {self.schema}: {self.reason}"


_MOST_NAMES: Final = 10


def listed(names: Collection[str]) -> str:
    """Returns names of a schema for an error, at most ten."""
    more = len(names) - _MOST_NAMES
    return quoted(", ".join(islice(names, _MOST_NAMES))) + (f" and {more:,} more" if more > 0 else "")


def filled(values: NDArray[Any], present: Present | None) -> NDArray[Any]:
    """Returns the values, with the first present one in all rows without a value.

    With a value of the column in place of 0, all varints often have one width, which takes less time.
    """
    return values if present is None else np.where(present.rows, values, values[present.first()])
