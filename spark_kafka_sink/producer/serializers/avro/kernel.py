"""The type of kernels, their error, and the values that they take in rows without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_kafka_sink.records.parts import Part, Present

Kernel = Callable[[pa.Array, Present | None], Sequence[Part]]


class MisfitError(Exception):
    """A column's type does not fit the schema. The text is the reason."""


def filled(values: NDArray[Any], present: Present | None) -> NDArray[Any]:
    """Returns the values, with the first present one in all rows without a value.

    With a value of the column in place of 0, all varints often have one width, which takes less time.
    """
    return values if present is None else np.where(present.rows, values, values[present.first()])
