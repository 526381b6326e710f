"""AlterUserScramCredentials: what users log in with, from the next login on (Kafka's ScramControlManager)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.scram_credential import (
    ITERATIONS,
    SCRAM_HASHES,
    ScramCredential,
    ScramKey,
    of_salted_password,
)
from spark_kafka_sink.broker.handlers.controller import check_is_controller
from spark_kafka_sink.broker.handlers.scram_mechanisms import MECHANISMS
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

MAX_ITERATIONS: Final = 16_384


def handle_alter_user_scram_credentials(services: BrokerServices, request: Request) -> Message | None:
    body = request.body
    assert isinstance(body, AlterUserScramCredentialsRequest)
    check_is_controller(services)
    known = services.credentials.all_scram()
    changes: dict[str, tuple[ScramKey, ScramCredential | None]] = {}
    results: dict[str, AlterUserScramCredentialsResult] = {}
    asked: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*body.deletions, *body.upsertions]
    for each in asked:
        if each.name in results:
            continue  # its first error is told
        try:
            if changes.pop(each.name, None) is not None:
                raise ApiException(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
            changes[each.name] = _change(known, each)
        except ApiException as error:
            results[each.name] = AlterUserScramCredentialsResult(each.name, error.code, error.message)
    if changes:
        services.cluster.alter_scram(dict(changes.values()))
    changed = (AlterUserScramCredentialsResult(user, ErrorCode.NONE) for user in changes)
    return AlterUserScramCredentialsResponse(results=(*changed, *results.values()))


def _change(
    known: Mapping[ScramKey, ScramCredential], asked: ScramCredentialDeletion | ScramCredentialUpsertion
) -> tuple[ScramKey, ScramCredential | None]:
    """Raises ApiException as ScramControlManager validates."""
    if not asked.name:
        raise ApiException(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if asked.mechanism not in MECHANISMS:
        raise ApiException(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    key = MECHANISMS[asked.mechanism], asked.name
    if isinstance(asked, ScramCredentialDeletion):
        if key not in known:
            raise ApiException(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return key, None
    if asked.iterations < ITERATIONS:
        raise ApiException(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if asked.iterations > MAX_ITERATIONS:
        raise ApiException(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return key, of_salted_password(SCRAM_HASHES[key[0]], bytes(asked.salted_password), bytes(asked.salt), asked.iterations)
