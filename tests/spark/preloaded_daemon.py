"""PySpark's daemon, with the libraries imported before it forks workers, which saves each of them a third of a second.

The package itself is imported by each worker, as users have it. It sees that the main module is PySpark's.
"""

from __future__ import annotations

import runpy

import numpy  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.sql.functions  # noqa: F401

if __name__ == "__main__":
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
