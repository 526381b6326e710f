"""The user and the password, whichever options say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.security_config import SecurityConfig, security_config
from spark_kafka_sink.security.credentials import user_and_password

PASSWORD = "a\"b'c\\d;${env:NOT_THERE}"


def config(**options: str) -> SecurityConfig:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return security_config({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **given})


def said(made: SecurityConfig) -> tuple[str, str]:
    user, password = user_and_password(made)
    assert PASSWORD not in repr(password)
    return user, password.reveal()


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The password is in the variable PASSWORD and in a file of the folder that is returned."""
    monkeypatch.setenv("PASSWORD", PASSWORD)
    monkeypatch.setenv("LOGIN_USER", "alice")
    (tmp_path / "password").write_text(PASSWORD, encoding="utf-8")
    return str(tmp_path)


def test_references_are_read_and_what_they_yield_is_taken_as_it_is(references: str) -> None:
    assert said(config(sasl_username="${env:LOGIN_USER}", sasl_password="${env:PASSWORD}")) == ("alice", PASSWORD)
    assert said(config(sasl_username="alice", sasl_password=f"${{directory:{references}:password}}")) == ("alice", PASSWORD)
    line = 'x.PlainLoginModule required username="${env:LOGIN_USER}" password="${env:PASSWORD}";'
    assert said(config(sasl_jaas_config=line)) == ("alice", PASSWORD)


def test_a_login_line_may_be_one_reference(references: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config(sasl_jaas_config="${env:LINE}")
    monkeypatch.setenv("LINE", "x.PlainLoginModule required username=alice password='a\"b';")
    assert said(made) == ("alice", 'a"b')
    monkeypatch.setenv("LINE", "x.ScramLoginModule required username=alice password='a\"b';")
    with pytest.raises(OptionError, match=r"ScramLoginModule is for SCRAM-SHA-256 or .*, but sasl\.mechanism is PLAIN"):
        user_and_password(made)
    monkeypatch.setenv("LINE", "x.PlainLoginModule required username=alice;")
    with pytest.raises(OptionError, match="PlainLoginModule requires username"):
        user_and_password(made)
