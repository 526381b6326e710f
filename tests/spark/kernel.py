"""A real Jupyter kernel, as notebooks have it: runs cells, and is interrupted by the stop button."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import psutil
from jupyter_client.manager import KernelManager

from tests.spark.session import ROOT

START_S = 120.0
CELL_S = 100.0

SETUP = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker
broker = EmbeddedBroker()
broker.start()
broker.create_topic("events", partitions=2)
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
metrics = sks.register(spark)
"""
"""A broker, a session and `metrics`, as most notebooks begin."""


@dataclass(slots=True)
class Cell:
    """The outputs of a cell: its texts in order, and the name and the text of its error, if there is one."""

    texts: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


class Kernel:
    """Ends with the block, with all processes that it has started."""

    def __enter__(self) -> Self:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._manager = KernelManager(kernel_name="python3")
        self._manager.kernel_spec.argv[0] = sys.executable
        # Their own packages warn.
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "JUPYTER_PLATFORM_DIRS": "1"}
        self._manager.start_kernel(env=environment)
        self._connect()
        return self

    def __exit__(self, *error: object) -> None:
        left = self.descendants()
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass

    def _connect(self) -> None:
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=START_S)

    def descendants(self) -> list[psutil.Process]:
        """Returns the processes that the kernel has started, and those that they have: Spark's JVM and its Python workers."""
        provisioner: Any = self._manager.provisioner
        try:
            return [process for process in psutil.Process(provisioner.pid).children(recursive=True) if process.is_running()]
        except psutil.NoSuchProcess:
            return []

    def run(self, source: str, interrupt_when: Callable[[str], bool] | None = None) -> Cell:
        """Runs a cell. interrupt_when: the cell is interrupted once an output has such a text."""
        cell, interrupted = Cell(), False

        def take(message: dict[str, Any]) -> None:
            nonlocal interrupted
            content = message["content"]
            text = content.get("text") or content.get("data", {}).get("text/plain", "")
            if message["msg_type"] == "error":
                cell.error = f"{content['ename']}: {content['evalue']}\n" + "\n".join(content["traceback"])
            elif text:
                cell.texts.append(text)
            if interrupt_when is not None and not interrupted and interrupt_when(text):
                interrupted = True
                self._manager.interrupt_kernel()

        self._client.execute_interactive(source, timeout=CELL_S, output_hook=take, allow_stdin=False)
        return cell
