"""A producer says at its start what is allowed and not safe."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.producer.producer import Producer


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
            "option ssl.endpoint.identification.algorithm is empty: host names of brokers are not verified",
        ),
        ({"sasl.mechanism": "PLAIN"}, "security.protocol is PLAINTEXT, so these options are ignored: sasl.mechanism"),
        ({"security.protocol": "SSL"}, ""),
        ({}, ""),
    ],
)
def test_each_start_warns(options: dict[str, str], said: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        caplog.clear()
        Producer({"bootstrap.servers": "127.0.0.1:1", **options}).close(0)
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert [text[: len(said)] for text in warnings if "ssl." in text or "sasl." in text] == [said] * bool(said)
