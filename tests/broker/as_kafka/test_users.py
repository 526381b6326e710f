"""The same requests for users' credentials and for folders to Kafka 4.1 and to the embedded broker: the same answers."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.cluster import DescribableLogDirTopic, DescribeLogDirsRequest
from spark_kafka_sink.protocol.apis.sasl import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tests.broker.as_kafka.pair import Pair, eventually
from tests.kafka.fixtures import only_real_kafka

pytestmark = only_real_kafka  # it is what the embedded broker is compared with

SHA_256, SHA_512 = 1, 2


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(user, mechanism, iterations, b"salt", b"salted password")


def in_any_order(answer: Any) -> Any:
    """Kafka's are in the order of a hash map."""
    return sorted(map(str, answer.results))


def infos_in_any_order(answer: Any) -> Any:
    return answer.error_code, sorted(
        (each.user, each.error_code, each.error_message, sorted(map(str, each.credential_infos))) for each in answer.results
    )


def altered(both: Pair, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> Any:
    deletions = [each for each in changes if isinstance(each, ScramCredentialDeletion)]
    upsertions = [each for each in changes if isinstance(each, ScramCredentialUpsertion)]
    request = AlterUserScramCredentialsRequest(deletions, upsertions)
    return both.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request, in_any_order)


def described(both: Pair, *users: str) -> Any:
    request = DescribeUserScramCredentialsRequest([UserName(user) for user in users])
    found: list[Any] = []

    def same() -> bool:
        found[:] = both.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request, infos_in_any_order)
        return True

    eventually(same)
    return found


def test_users_come_change_and_go(both: Pair) -> None:
    user, other = f"{both.t}-user", f"{both.t}-other"
    altered(both, upsertion(user), upsertion(other, SHA_512, 8192))
    described(both, user, other)
    altered(both, upsertion(user, SHA_512))
    assert "CredentialInfo" in str(described(both, user))
    altered(both, ScramCredentialDeletion(user, SHA_256))
    described(both, user, other, both.missing)
    altered(both, ScramCredentialDeletion(user, SHA_512))
    described(both, user)


def test_what_cannot_be_changed(both: Pair) -> None:
    user = f"{both.t}-user"
    altered(both, ScramCredentialDeletion(user, SHA_256))
    altered(both, upsertion(""))
    for mechanism in (0, 3, -1):
        altered(both, upsertion(user, mechanism))
    for iterations in (4095, 16_385, -1):
        altered(both, upsertion(user, iterations=iterations))
    altered(both, upsertion(user), upsertion(user, SHA_512), upsertion(f"{user}-2"))
    altered(both, ScramCredentialDeletion(user, SHA_256), upsertion(user))
    altered(both)
    described(both, user, f"{user}-2")


def test_a_user_described_twice(both: Pair) -> None:
    described(both, both.missing, both.missing)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_folders(both: Pair, version: int) -> None:
    def seen(answer: Any) -> Any:
        (result,) = answer.results
        topics = sorted((topic.name, sorted(map(str, topic.partitions))) for topic in result.topics)
        return answer.error_code, result.error_code, topics

    for partitions in ([0, 1], [1], [9], []):
        for name in (both.t, both.missing):
            asked = DescribeLogDirsRequest([DescribableLogDirTopic(name, partitions)])
            both.ask(ApiKey.DESCRIBE_LOG_DIRS, version, asked, seen)
