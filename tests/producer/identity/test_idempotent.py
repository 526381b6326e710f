"""How loudly the log tells that no producer id can be had."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest

from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.identity import IdempotentIdentity
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID, InitProducerIdResponse

COORDINATOR_LOAD_IN_PROGRESS = 14


@pytest.fixture
def identity() -> IdempotentIdentity:
    return IdempotentIdentity(
        producer_config({"bootstrap.servers": "a:1"}), Mock(spec=NetworkClient), Mock(spec=RecordAccumulator)
    )


def levels(identity: IdempotentIdentity, caplog: pytest.LogCaptureFixture, answers: dict[int, int]) -> list[str]:
    """The levels of what is logged for `answers`: times in ms, and error codes."""
    caplog.set_level(logging.INFO)
    for now_ms, code in answers.items():
        body = InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=0)
        response = ClientResponse(1, INIT_PRODUCER_ID, 4, 0, body, None, 0, now_ms)
        assert identity.answered(response, now_ms) is None
    return [record.levelname for record in caplog.records]


def test_a_refusal_that_passes_is_no_warning_and_one_that_lasts_is_one_every_five_seconds(
    identity: IdempotentIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    refused = dict.fromkeys([100, 200, 5099, 5100, 5200, 10_100], COORDINATOR_LOAD_IN_PROGRESS)

    assert levels(identity, caplog, refused) == ["INFO", "INFO", "INFO", "WARNING", "INFO", "WARNING"]


def test_an_answer_in_between_begins_the_five_seconds_again(
    identity: IdempotentIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {100: COORDINATOR_LOAD_IN_PROGRESS, 200: 0, 9000: COORDINATOR_LOAD_IN_PROGRESS}

    assert levels(identity, caplog, answers) == ["INFO", "INFO"]
