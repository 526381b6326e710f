"""The messages of golden/messages-*.txt: the bytes that Java wrote, and the same messages built here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.fields import Message
from tests.protocol.filling import Filling

CORRELATION_ID = 77
CLIENT_ID = "client-ü"


@dataclass(frozen=True)
class Golden:
    """One line of the file."""

    api: AnyApi
    version: int
    kind: str
    filling: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.api.name}-v{self.version}-{self.kind}-{self.filling}"

    def message(self) -> Message:
        """The message that `data` stands for, with defaults where the version lacks a field."""
        cls = self.api.request if self.kind == "request" else self.api.response
        body: Message = Filling(self.filling == "full").message(cls, self.version)
        return body


def golden_messages() -> list[Golden]:
    files = sorted(Path(__file__).with_name("golden").glob("messages-*.txt"))
    return [_golden(*line.split()) for file in files for line in file.read_text().splitlines()]


def boundary_messages() -> list[Golden]:
    """Of each API the newest version, and the last without tagged fields: every kind of field in every notation."""
    return [
        golden
        for golden in golden_messages()
        if golden.filling == "full" and golden.version in {golden.api.max_version, golden.api.flexible_from - 1}
    ]


def _golden(name: str, version: str, kind: str, filling: str, data: str) -> Golden:
    return Golden(ALL_APIS[ApiKey[name]], int(version), kind, filling, bytes.fromhex(data))
