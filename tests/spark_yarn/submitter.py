"""Submits programs to YARN by the commands of docs/deploying.md."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from tests.faults.exactly_once.standalone import ADDRESS, SPARK_HOME
from tests.kafka.class_archive import QUICK_START
from tests.spark_cluster.application import Application, Recipe
from tests.spark_yarn.yarn import YarnCluster

Mode = Literal["client", "cluster"]

_JAVA: Final = " ".join(QUICK_START)
SETTINGS: Final = {
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    "spark.executorEnv.SPARK_LOCAL_IP": ADDRESS,
    "spark.sql.files.openCostInBytes": str(128 << 20),  # a task for each file
    "spark.ui.enabled": "false",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": ADDRESS,
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",  # packing and sending them takes half a minute
    "spark.yarn.am.memory": "256m",
}
# YARN says where the driver of cluster mode runs.
OF_CLIENT: Final = {"spark.driver.host": ADDRESS, "spark.driver.bindAddress": ADDRESS}


@dataclass(frozen=True)
class Submitter:
    """folder: takes the plans, the results and what Spark prints."""

    yarn: YarnCluster
    recipe: Recipe
    folder: Path

    def with_recipe(self, recipe: Recipe) -> Submitter:
        return replace(self, recipe=recipe)

    def submit(
        self, name: str, mode: Mode, program: ModuleType, plan: Mapping[str, Any], settings: Mapping[str, str] | None = None
    ) -> Application:
        """Starts a program with a plan in JSON as its argument. Earlier applications must have ended.

        name: of the files in the folder, used once.
        """
        assert program.__file__ is not None
        self.yarn.wait_until_idle()
        (self.folder / f"{name}.json").write_text(json.dumps(plan))
        # In client mode the path is relative to the working directory.
        arguments = [Path(shutil.copy(program.__file__, self.recipe.folder / "job.py")).name, str(self.folder / f"{name}.json")]
        all_settings = {**SETTINGS, "spark.yarn.stagingDir": str(self.folder / "staging"), **(settings or {})}
        log = self.folder / f"{name}.log"
        if mode == "client":
            process = self.recipe.submit("yarn", arguments, log, {**all_settings, **OF_CLIENT}, self.yarn.environment)
        else:
            process = self.recipe.submit_in_cluster_mode(arguments, log, all_settings, self.yarn.environment)
        return Application(process, log, ui_port=0)
