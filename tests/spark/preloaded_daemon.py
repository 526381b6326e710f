"""PySpark's daemon, with the libraries imported before it forks workers, which saves each of them a third of a second.

The package itself is imported by each worker, as users have it.
"""

from __future__ import annotations

import numpy  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.sql.functions  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
