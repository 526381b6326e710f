"""The error table: every code that Kafka has, and one that it has not."""

from __future__ import annotations

import pytest

from spark_kafka_sink.producer.base.produce_reactions import ADVICE, Action, action_for
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from tests.every import every

RETRIED = {5, 6, 9, 13, 56, 74, 2, 7, 20, 89}
NOT_STORED = {14, 15, 16, 19, 51}
FAILED = {-1, 8, 17, 18, 21, 29, 42, 43, 47, 48, 76, 120}


@pytest.mark.fault("error codes", "2, 7, 19, 20, 89: retried")
@pytest.mark.fault("error codes", "3, 5, 6, 9, 13, 56, 74, 100, 103: retried with fresh metadata")
@every("code", sorted(RETRIED))
def test_passing_trouble_is_retried(code: int) -> None:
    assert action_for(code, idempotent=True) is Action.RETRY


@every("code", sorted(NOT_STORED))
def test_what_a_broker_refuses_before_it_appends_is_retried_and_certainly_not_stored(code: int) -> None:
    assert action_for(code, idempotent=True) is Action.LATER


@pytest.mark.fault("error codes", "3, 5, 6, 9, 13, 56, 74, 100, 103: retried with fresh metadata")
@pytest.mark.parametrize("code", [3, 100, 103])
def test_an_unknown_topic_is_retried_too_but_may_come_back_made_anew(code: int) -> None:
    assert action_for(code, idempotent=True) is Action.TOPIC_UNKNOWN


@pytest.mark.fault("error codes", "-1, 8, 17, 18, 21, 29, 32, 42, 43, 76, 87: the batch fails, a transaction can only be aborted")
@every("code", sorted(FAILED))
def test_what_no_retry_mends_fails_the_batch(code: int) -> None:
    assert action_for(code, idempotent=True) is Action.FAIL


@pytest.mark.fault("error codes", "10 MESSAGE_TOO_LARGE: split without using up a retry")
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_is_too_large_is_split(idempotent: bool) -> None:
    assert action_for(10, idempotent=idempotent) is Action.SPLIT


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("code", [32, 87])
def test_where_single_records_are_to_blame_the_others_go_on(code: int, idempotent: bool) -> None:
    assert action_for(code, idempotent=idempotent) is Action.REJECTED


@pytest.mark.fault("error codes", "31, 35, 49, 53, 90: fatal")
@pytest.mark.parametrize("code", [31, 35, 49, 53, 90])
def test_what_is_about_the_producer_itself_ends_it(code: int) -> None:
    assert action_for(code, idempotent=True) is Action.FATAL


@pytest.mark.fault("error codes", "46 DUPLICATE_SEQUENCE_NUMBER: success without an offset")
@pytest.mark.parametrize("code", [0, 46])
def test_stored_is_delivered_once_or_again(code: int) -> None:
    assert action_for(code, idempotent=True) is Action.DELIVERED


@pytest.mark.parametrize(("code", "action"), [(45, Action.OUT_OF_ORDER), (59, Action.PRODUCER_LOST)])
def test_sequence_errors_are_for_an_idempotent_producer_only(code: int, action: Action) -> None:
    assert action_for(code, idempotent=True) is action
    assert action_for(code, idempotent=False) is Action.FAIL


@pytest.mark.fault("produce answers", "an unknown code")
def test_an_unknown_code_is_not_retried() -> None:
    assert action_for(9999, idempotent=True) is Action.FAIL


def test_whatever_java_calls_retriable_is_retried() -> None:
    for code in ErrorCode:
        if error_facts(code).retriable:
            assert action_for(code, idempotent=True) in (Action.RETRY, Action.LATER, Action.TOPIC_UNKNOWN), code.name


def test_advice_is_for_codes_that_fail() -> None:
    for code in ADVICE:
        assert action_for(code, idempotent=True) in (Action.FAIL, Action.FATAL, Action.SPLIT, Action.REJECTED)
