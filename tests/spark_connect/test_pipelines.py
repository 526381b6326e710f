"""Declarative pipelines: the project of docs/pipelines.md, run by `spark-pipelines`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pyspark
import pytest

from spark_kafka_sink.broker import EmbeddedBroker
from tests.exactly_once.opened import new_id
from tests.kafka.witness import read_topic
from tests.spark.session import ROOT
from tests.spark_connect.server import ConnectServer, environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(390),
    pytest.mark.skipif(pyspark.__version__.startswith("4.0"), reason="declarative pipelines came with Spark 4.1"),
    pytest.mark.whole("Spark's engine runs the flows as any stream; test_connect.py has one on the same server"),
]


class Project:
    """The project of the page, with its folders and its broker replaced, and a topic of its own."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, server: ConnectServer) -> None:
        self._folder, self._broker, self._server = folder, broker, server
        self.topic = new_id("clicks")
        broker.create_topic(self.topic)
        (folder / "rows").mkdir()
        (folder / "transformations").mkdir()
        page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
        spec, self.flow = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("yaml", "python"))
        (folder / "spark-pipeline.yml").write_text(spec.replace("file:///data/pipelines/clicks", f"file://{folder}/storage"))
        self.declare()

    def declare(self, old: str = "", new: str = "", *, more: str = "") -> None:
        """Writes the flow with a text replaced, and with more at its end."""
        text = (self.flow + more).replace(old, new or old)
        text = text.replace("localhost:9092", self._broker.bootstrap_servers).replace("/data/clicks", f"{self._folder}/rows")
        text = text.replace('"topic": "clicks"', f'"topic": "{self.topic}"')
        (self._folder / "transformations" / "clicks.py").write_text(text)

    def add(self, *values: int) -> None:
        rows = [json.dumps({"key": str(value), "value": str(value)}) for value in values]
        (self._folder / "rows" / f"{values[0]}.json").write_text("\n".join(rows))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines"), "run", "--remote", self._server.address]
        return subprocess.run(
            [*command, *arguments],
            cwd=self._folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )

    def committed(self) -> list[int]:
        found = read_topic(self._broker.bootstrap_servers, self.topic, isolation_level="read_committed")
        return sorted(int(each.value or b"") for each in found)


@pytest.fixture
def project(tmp_path: Path, broker: EmbeddedBroker, server: ConnectServer) -> Project:
    return Project(tmp_path, broker, server)


def test_a_second_run_continues_and_a_full_refresh_writes_all_rows_again(project: Project) -> None:
    for added, arguments, wanted in (
        ((0, 1, 2), (), [0, 1, 2]),
        ((3, 4), (), [0, 1, 2, 3, 4]),
        ((), ("--full-refresh-all",), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]),
    ):
        if added:
            project.add(*added)
        ran = project.run(*arguments)
        assert ran.returncode == 0, ran.stdout
        assert project.committed() == wanted


def test_two_flows_write_to_one_topic(project: Project) -> None:
    project.declare(more=project.flow[project.flow.index("\n\n@dp") :].replace("clicks_to_kafka", "again"))
    project.add(7, 8)
    ran = project.run()
    assert ran.returncode == 0, ran.stdout
    assert project.committed() == [7, 7, 8, 8]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('"topic"', '"kafka.ackss": "all", "topic"', "[OPTION] unknown option kafka.ackss; did you mean kafka.acks?"),
        (
            '.json("/data/clicks")',
            '.json("/data/clicks").groupBy("key").count().selectExpr("key AS value")',
            "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]",
        ),
    ],
)
def test_what_does_not_work_ends_the_run_with_its_cause(project: Project, old: str, new: str, error: str) -> None:
    project.declare(old, new)
    project.add(1)
    ran = project.run()
    assert ran.returncode == 1
    assert error in ran.stdout
    assert project.committed() == []
