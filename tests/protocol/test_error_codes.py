"""The error codes are those of Kafka's own Errors class."""

from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.protocol.error_codes import ErrorCode, ErrorFacts, error_facts
from tests.every import every

GOLDEN = Path(__file__).with_name("golden").joinpath("errors-4.1.0.txt").read_text().splitlines()


def _facts(line: str) -> ErrorFacts:
    code, name, retriable, invalid_metadata = line.split()
    return ErrorFacts(int(code), name, retriable == "true", invalid_metadata == "true")


@every("expected", [_facts(line) for line in GOLDEN])
def test_the_facts_are_javas(expected: ErrorFacts) -> None:
    assert error_facts(expected.code) == expected


def test_there_is_no_code_that_java_lacks() -> None:
    assert {int(code) for code in ErrorCode} == {_facts(line).code for line in GOLDEN}


@every("code", [-32768, -2, 134, 32767])
def test_a_code_of_a_newer_broker_keeps_its_number_and_is_not_retriable(code: int) -> None:
    assert error_facts(code) == ErrorFacts(code, f"UNKNOWN_ERROR_CODE_{code}", retriable=False, refreshes_metadata=False)
