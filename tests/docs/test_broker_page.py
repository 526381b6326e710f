"""docs/broker.md: what it shows works as it stands there, and its tables leave nothing out."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from docs.pages import FOLDER
from spark_kafka_sink.broker import ApiKey, EmbeddedBroker, config_from
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from spark_kafka_sink.broker.faults.fault_injection import FaultInjection
from spark_kafka_sink.broker.faults.fault_text import add_fault
from spark_kafka_sink.broker.server_properties import SETTINGS
from tests.broker.network.client import Client

TEXT = (FOLDER / "broker.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def run(word: str, names: dict[str, Any]) -> None:
    (block,) = (block for block in BLOCKS if word in block)
    exec(compile(block, "broker.md", "exec"), names)


def test_brokers_start_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run("EmbeddedBroker() as broker", {})

    assert capsys.readouterr().out.startswith("127.0.0.1:")


def test_an_older_kafka_is_made_as_shown() -> None:
    run('EmbeddedBroker(like="3.7")', {"EmbeddedBroker": EmbeddedBroker})
    shown: dict[str, Any] = {"config_from": config_from}
    run("inter.broker.protocol.version", shown)

    assert not shown["config"].release.has_topic_ids


def test_faults_are_set_as_shown() -> None:
    with EmbeddedBroker(2) as broker:
        broker.create_topic("events", 1)
        text = "with faults.hold(ApiKey.PRODUCE) as held"
        block = next(block for block in BLOCKS if text in block)
        # A request has to come that is held: that of a client of this test.
        with Client(int(broker.address(1).rpartition(":")[2])) as client:
            shown = block.replace("ApiKey.PRODUCE) as held", "ApiKey.API_VERSIONS) as held").replace(
                "    held.wait()", "    ask()\n    held.wait()"
            )
            assert shown != block
            exec(compile(shown, "broker.md", "exec"), {"broker": broker, "ask": lambda: client.send(API_VERSIONS)})
            assert client.receive()
        assert broker.leader("events") == broker.coordinator("group", "my-group") == 2
        assert broker.faults.seen(ApiKey.API_VERSIONS) == 1


API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))
"""ApiVersions v0, from nobody."""


def test_faults_of_command_lines_are_understood() -> None:
    (command,) = re.findall(r"^spark-kafka-sink broker (--fault .*)$", TEXT, re.MULTILINE)
    texts = [word for word in shlex.split(command) if word != "--fault"]

    assert [str(add_fault(FaultInjection([1]), text)) for text in texts] == [
        "NOT_LEADER_OR_FOLLOWER for PRODUCE topic=events, hit 0 times",
        "500.0 ms of delay of FETCH, hit 0 times",
    ]


@pytest.mark.parametrize("name", [*SETTINGS, *TOPIC_CONFIGS])
def test_a_setting_has_a_row(name: str) -> None:
    assert f"\n| `{name}` |" in TEXT
