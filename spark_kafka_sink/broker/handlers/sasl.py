"""Handlers for logins and for SCRAM credentials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.broker.acl import AclOperation
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.credentials import (
    ITERATIONS,
    ScramCredential,
    ScramKey,
    of_salted_password,
)
from spark_kafka_sink.broker.handlers.auth_helper import check_cluster
from spark_kafka_sink.broker.handlers.common import check_is_controller
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.sasl.sasl_server_authenticator import authenticator_of, refuse
from spark_kafka_sink.protocol.apis.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.security.sasl.scram import SCRAM_HASHES


def handle_sasl_handshake(services: BrokerServices, request: Request) -> SaslHandshakeResponse | None:
    """Selects the mechanism of a login, or of a new login on the same connection (KIP-368)."""
    body: SaslHandshakeRequest = request.body
    authenticator, now_ms = authenticator_of(services, request), services.timer.now_ms()
    if not request.listener.is_sasl or (authenticator.is_complete() and not authenticator.may_reauthenticate(now_ms)):
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    try:
        authenticator.handshake(body.mechanism, now_ms)
    except ApiException as error:
        refuse(services, request, SaslHandshakeResponse(error.code, authenticator.mechanisms))
        return None
    request.session.has_bare_sasl_tokens = request.version == 0
    return SaslHandshakeResponse(ErrorCode.NONE, authenticator.mechanisms)


def handle_sasl_authenticate(services: BrokerServices, request: Request) -> SaslAuthenticateResponse | None:
    """Performs one step of a login."""
    body: SaslAuthenticateRequest = request.body
    authenticator = authenticator_of(services, request)
    if not request.listener.is_sasl or authenticator.is_complete():
        text = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, text)
    try:
        answer = authenticator.authenticate(body.auth_bytes, services.timer.now_ms())
    except ApiException as error:
        refusal = SaslAuthenticateResponse(error.code, error.message)
        refuse(services, request, None if request.session.has_bare_sasl_tokens else refusal)
        return None
    session = request.session
    is_bare = session.has_bare_sasl_tokens
    if authenticator.is_complete():
        session.principal = f"User:{authenticator.user}"
        session.is_authenticated = True
        session.has_bare_sasl_tokens = False
    if is_bare:
        request.answer_bare(answer)
        return None
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=authenticator.session_lifetime_ms())


MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by their number in requests (Kafka's ScramMechanism)."""
MAX_ITERATIONS: Final = 16_384


def handle_describe_user_scram_credentials(services: BrokerServices, request: Request) -> DescribeUserScramCredentialsResponse:
    body: DescribeUserScramCredentialsRequest = request.body
    check_cluster(services, request, AclOperation.DESCRIBE)
    known = services.credentials.all_scram()
    asked = Counter(user.name for user in body.users or ()) or Counter({user for _, user in known})
    return DescribeUserScramCredentialsResponse(
        results=tuple(_described_user(known, user, count) for user, count in asked.items())
    )


def _described_user(known: dict[ScramKey, ScramCredential], user: str, times: int) -> DescribeUserScramCredentialsResult:
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


def handle_alter_user_scram_credentials(services: BrokerServices, request: Request) -> AlterUserScramCredentialsResponse:
    """Changes SCRAM credentials, from the next login on (Kafka's ScramControlManager)."""
    body: AlterUserScramCredentialsRequest = request.body
    check_is_controller(services)
    check_cluster(services, request, AclOperation.ALTER)
    known = services.credentials.all_scram()
    changes: dict[str, tuple[ScramKey, ScramCredential | None]] = {}
    results: dict[str, AlterUserScramCredentialsResult] = {}
    asked: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*body.deletions, *body.upsertions]
    for each in asked:
        if each.name in results:
            continue  # its first error is reported
        try:
            if changes.pop(each.name, None) is not None:
                raise ApiException(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
            changes[each.name] = _credential_change(known, each)
        except ApiException as error:
            results[each.name] = AlterUserScramCredentialsResult(each.name, error.code, error.message)
    if changes:
        services.cluster.alter_scram(dict(changes.values()))
    changed = (AlterUserScramCredentialsResult(user, ErrorCode.NONE) for user in changes)
    return AlterUserScramCredentialsResponse(results=(*changed, *results.values()))


def _credential_change(
    known: Mapping[ScramKey, ScramCredential], asked: ScramCredentialDeletion | ScramCredentialUpsertion
) -> tuple[ScramKey, ScramCredential | None]:
    """Returns a validated change. Raises ApiException as ScramControlManager does."""
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
