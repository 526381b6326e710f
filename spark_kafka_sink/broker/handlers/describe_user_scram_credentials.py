"""DescribeUserScramCredentials: the mechanisms that users can log in with (Kafka's ScramImage)."""

from __future__ import annotations

from collections import Counter

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.scram_credential import ScramCredential, ScramKey
from spark_kafka_sink.broker.handlers.scram_mechanisms import MECHANISMS
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.sasl import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle_describe_user_scram_credentials(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, DescribeUserScramCredentialsRequest)
    known = services.credentials.all_scram()
    asked = Counter(user.name for user in body.users or ()) or Counter({user for _, user in known})
    return DescribeUserScramCredentialsResponse(results=tuple(_result(known, user, count) for user, count in asked.items()))


def _result(known: dict[ScramKey, ScramCredential], user: str, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.DUPLICATE_RESOURCE, text)
    infos = tuple(
        CredentialInfo(number, known[mechanism, user].iterations)
        for number, mechanism in MECHANISMS.items()
        if (mechanism, user) in known
    )
    if not infos:
        text = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(user, ErrorCode.RESOURCE_NOT_FOUND, text)
    return DescribeUserScramCredentialsResult(user, ErrorCode.NONE, "", infos)
