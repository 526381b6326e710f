"""Python imports this first in each process that Spark starts, as its folder is in their PYTHONPATH.

Lets a report wait a minute for the driver program. A report that waited 2 s is lost, and a busy machine may take longer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class PatientReports(MetaPathFinder):
    """Changes the limit once the module that has it is imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "spark_kafka_sink.spark.reports_to_driver":
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            vars(module)["TIMEOUT_S"] = 60.0

        spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, PatientReports())
