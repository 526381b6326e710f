"""golden/bytes.txt: what Kafka's own Java serializers made of values (GoldenSerializers.java)."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from tests.kafka.jars import jars
from tests.kafka.java import java

PROGRAM = Path(__file__).parent / "golden" / "GoldenSerializers.java"
BYTES = Path(__file__).parent / "golden" / "bytes.txt"


@dataclass(frozen=True)
class GoldenValue:
    """value: None, a Python value, or a list of those, whose elements `serializer` is for. encoding: None where it is not set."""

    serializer: str
    encoding: str | None
    value: Any
    bytes: bytes | None


@dataclass(frozen=True)
class GoldenCharset:
    name: str
    aliases: tuple[str, ...]
    digest: str


@dataclass(frozen=True)
class Golden:
    values: tuple[GoldenValue, ...]
    lists: tuple[GoldenValue, ...]
    charsets: tuple[GoldenCharset, ...]


def _hex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("x"))


def _utf16(text: str) -> str:
    return _hex(text).decode("utf-16-be", "surrogatepass")


READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("Short", "Integer", "Long"), int),
    "Float": lambda text: struct.unpack(">f", bytes.fromhex(text))[0],
    "Double": lambda text: struct.unpack(">d", bytes.fromhex(text))[0],
    "Boolean": lambda text: text == "true",
    **dict.fromkeys(("ByteArray", "Bytes", "ByteBuffer"), _hex),
    "String": _utf16,
    "UUID": UUID,
    "Void": lambda text: None,
}

ARROW: Mapping[str, pa.DataType] = {
    "Short": pa.int16(),
    "Integer": pa.int32(),
    "Long": pa.int64(),
    "Float": pa.float32(),
    "Double": pa.float64(),
    "Boolean": pa.bool_(),
    **dict.fromkeys(("ByteArray", "Bytes", "ByteBuffer"), pa.binary()),
    "String": pa.string(),
    "UUID": pa.string(),
    "Void": pa.int32(),
}


def _value(kind: str, text: str) -> Any:
    return None if text == "-" else READ[kind](text)


def _list(kind: str, text: str) -> Any:
    # No list is "-" and so is a list of one null, which the program does not make.
    return None if text == "-" else [] if text == "." else [_value(kind, one) for one in text.split(",")]


def parse(text: str) -> Golden:
    values: list[GoldenValue] = []
    lists: list[GoldenValue] = []
    charsets: list[GoldenCharset] = []
    for line in text.splitlines():
        what, *words = line.split(" ")
        if what == "charset":
            charsets.append(GoldenCharset(words[0], tuple(filter(None, words[1].split(","))), words[2]))
            continue
        kind, encoding, value, found = words
        read, into = (_value, values) if what == "value" else (_list, lists)
        made = None if found == "-" else _hex(found)
        into.append(GoldenValue(kind, None if encoding == "." else encoding, read(kind, value), made))
    return Golden(tuple(values), tuple(lists), tuple(charsets))


def golden() -> Golden:
    return parse(BYTES.read_text())


def run_java() -> str:
    """What GoldenSerializers prints: about four seconds, as Java compiles it first."""
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(jars() / "*"), str(PROGRAM)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
