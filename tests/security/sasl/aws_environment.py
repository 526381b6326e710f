"""An environment of AWS without a network: no file and no variable of the machine's, and an STS on the loopback address."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from spark_kafka_sink.security.sasl import token_cache
from tests.security.sasl.http_servers import Answer, http_server

HOST = "b-1.x.abcdef.kafka.eu-west-1.amazonaws.com"


def clean_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Takes away what botocore could find credentials by, and what this process has found before."""
    monkeypatch.setattr(token_cache, "_shared", token_cache._Shared())
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))


def set_key(monkeypatch: pytest.MonkeyPatch, token: str = "") -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S3CRET")
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)


_ASSUMED = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/sink/s</Arn><AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser>
<Credentials><AccessKeyId>ASIA2</AccessKeyId><SecretAccessKey>ROLES3CRET</SecretAccessKey><SessionToken>ROLET0KEN</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
_DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>AccessDenied</Code>
<Message>not authorized to perform: sts:AssumeRole</Message></Error></ErrorResponse>"""


@contextmanager
def local_sts(monkeypatch: pytest.MonkeyPatch, *, denies: bool = False) -> Iterator[list[dict[str, str]]]:
    """Serves AssumeRole. Yields a list that has the requests at the end: their parameters and `key_id`, who signed."""
    asked: list[dict[str, str]] = []
    answer = Answer(403, _DENIED.encode()) if denies else Answer(200, _ASSUMED.encode())
    with http_server(answer) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.port}")
        yield asked
    for request in server.requests:
        key_id = request.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        asked.append(dict(parse_qsl(request.body.decode())) | {"key_id": key_id})
