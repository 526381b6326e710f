"""docs/broker.md leaves out no setting, and the command lines with faults that it shows are understood."""

from __future__ import annotations

import re
import shlex
from typing import Any

from docs.pages import FOLDER
from spark_kafka_sink.broker import config_from
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from spark_kafka_sink.broker.faults.fault_injection import FaultInjection
from spark_kafka_sink.broker.faults.fault_text import add_fault
from spark_kafka_sink.broker.server_properties import SETTINGS
from tests.docs.snippets import python_blocks
from tests.every import every

TEXT = (FOLDER / "broker.md").read_text(encoding="utf-8")


def test_a_broker_in_zookeeper_mode_is_configured_as_shown() -> None:
    (block,) = (block for block in python_blocks("broker.md") if "inter.broker.protocol.version" in block.source)
    shown: dict[str, Any] = {"config_from": config_from}
    exec(compile(block.source, str(block), "exec"), shown)

    assert not shown["config"].release.has_topic_ids


def test_faults_of_command_lines_are_understood() -> None:
    (command,) = re.findall(r"^spark-kafka-sink broker (--fault (?:.*\\\n)*.*)$", TEXT, re.MULTILINE)
    texts = [word for word in shlex.split(command.replace("\\\n", " ")) if word != "--fault"]

    assert [str(add_fault(FaultInjection([1]), text)) for text in texts] == [
        "NOT_LEADER_OR_FOLLOWER for PRODUCE topic=events, hit 0 times",
        "500.0 ms of delay of FETCH, hit 0 times",
    ]


@every("name", [*SETTINGS, *TOPIC_CONFIGS])
def test_a_setting_has_a_row(name: str) -> None:
    assert f"\n| `{name}` |" in TEXT
