"""Keeps secrets out of the errors of Spark's Python processes, where these show local variables."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from spark_kafka_sink.errors import KafkaSinkError

P = ParamSpec("P")
R = TypeVar("R")


def without_local_variables(call: Callable[P, R]) -> Callable[P, R]:
    """Cuts the frames of our errors if `spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled` is set.

    The frames that read options and log in hold secrets, and those that write hold rows. Our errors name their cause without
    them. Spark tells its Python processes of the setting by this variable.
    """

    @wraps(call)
    def calls(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except KafkaSinkError as error:
            if "SPARK_TRACEBACK_WITH_LOCALS" in os.environ:
                raise error.with_traceback(None) from None
            raise

    return calls
