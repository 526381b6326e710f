"""The sink's own log lines in the Python processes that Spark starts, where nobody configures logging."""

from __future__ import annotations

import logging
import sys

PACKAGE = "spark_kafka_sink"

# As the lines of Spark's own log, which they stand among: its default pattern is "%d{yy/MM/dd HH:mm:ss} %p %c{1}: %m".
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME = "%y/%m/%d %H:%M:%S"


def log_in_sparks_process() -> None:
    """Gives the package's warnings a time, a level and a logger's name on stderr, in a process of Spark's own.

    Without any handler Python prints the bare message. A process that has configured logging, be it later, is left alone, and so
    is every program that Spark did not start.
    """
    package = logging.getLogger(PACKAGE)
    if package.handlers or logging.getLogger().handlers or not _is_sparks():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
    handler.addFilter(lambda record: not logging.getLogger().handlers)
    package.addHandler(handler)


def _is_sparks() -> bool:
    """Whether the program of this process is a module of pyspark's: its daemon, which forks workers, or one of its workers."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
