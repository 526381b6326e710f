"""Confluent's reader for Java finds the message that was written, by its indexes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spark_kafka_sink.formats.protobuf.protobuf_format import message_types
from tests.kafka.jars import jars
from tests.kafka.java import java
from tests.registry.apicurio import POM

PROGRAM = Path(__file__).parent / "golden" / "MessageNames.java"


@pytest.mark.whole("starts Java; test_descriptors.py counts the messages of a text")
@pytest.mark.java
def test_java_finds_each_message_of_a_text() -> None:
    entry = "message TEntry { option map_entry = true; string key = 1; string value = 2; }"
    maps = f"map<string, string> q = 1; enum E {{ Z = 0; }} message B {{}} repeated TEntry t = 2; {entry}"
    texts = {
        f'syntax = "proto3"; message First {{}} message A {{ {maps} message D {{ map<string, B> m = 1; message F {{}} }} }}': (
            ["First", "A", "A.B", "A.D", "A.D.F"]
        ),
        'syntax = "proto2"; message A { optional group G = 1 {} oneof o { group H = 2 {} } message B {} }': ["A.B"],
    }
    names = [(text, name) for text, names in texts.items() for name in names]
    arguments = [
        argument
        for text, name in names
        for argument in (text, ",".join(map(str, message_types(text, {}, name).indexes)))
    ]  # fmt: skip

    done = subprocess.run(
        [java(), "-XX:TieredStopAtLevel=1", "-cp", str(jars(POM) / "lib" / "*"), str(PROGRAM), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.stdout.splitlines() == [name for _, name in names], done.stderr
