"""A Spark Connect server, as an administrator starts it: a process of its own that listens on a free port of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import pyspark

from tests.kafka.ports import free_ports
from tests.spark.session import ROOT
from tests.waiting import until

START_S: Final = 180.0
SETTINGS: Final[Mapping[str, str]] = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.progress.reportInterval": "100ms",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    # What docs/deploying.md advises, so that an error is short.
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
}


class ConnectServer:
    """Runs from `with` to its end. One thread uses it."""

    def __init__(self, folder: Path) -> None:
        """folder: takes its output, warehouse and temporary files."""
        self._folder = folder
        self._port = free_ports(1)[0]
        self.address = f"sc://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        home = Path(pyspark.__file__).parent
        settings = {
            **SETTINGS,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.local.dir": str(self._folder),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
        }
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2]"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        with (self._folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, env=environment(), cwd=self._folder, stdout=log, stderr=subprocess.STDOUT)
        until(self._is_open, bool, "the Connect server listens", deadline_s=START_S)
        return self

    def _is_open(self) -> bool:
        assert self._process.poll() is None, self.log()
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def log(self) -> str:
        """Returns the last lines that it printed."""
        return (self._folder / "server.log").read_text(errors="replace")[-4000:]


def environment() -> dict[str, str]:
    """Returns the environment of a process that uses or runs Spark: this Python, and the package of this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
