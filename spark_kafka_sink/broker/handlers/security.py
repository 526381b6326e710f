"""Handlers for logins, for SCRAM credentials, and for ACLs (Kafka's AclApis and AclControlManager)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from spark_kafka_sink.broker.acl import CLUSTER_NAME, Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.cluster.credentials import ITERATIONS, ScramCredential, ScramKey, of_salted_password
from spark_kafka_sink.broker.handlers.common import check_cluster, check_is_controller
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.sasl_server import authenticator_of, refuse
from spark_kafka_sink.protocol.apis import cluster, sasl
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.security.sasl.scram import SCRAM_HASHES


def handle_sasl_handshake(services: BrokerServices, request: Request) -> sasl.SaslHandshakeResponse | None:
    """Selects the mechanism of a login, or of a new login on the same connection (KIP-368)."""
    body: sasl.SaslHandshakeRequest = request.body
    authenticator, now_ms = authenticator_of(services, request), services.timer.now_ms()
    if not request.listener.is_sasl or (authenticator.is_complete() and not authenticator.may_reauthenticate(now_ms)):
        return sasl.SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    try:
        authenticator.handshake(body.mechanism, now_ms)
    except ApiException as error:
        refuse(services, request, sasl.SaslHandshakeResponse(error.code, authenticator.mechanisms))
        return None
    request.session.has_bare_sasl_tokens = request.version == 0
    return sasl.SaslHandshakeResponse(ErrorCode.NONE, authenticator.mechanisms)


def handle_sasl_authenticate(services: BrokerServices, request: Request) -> sasl.SaslAuthenticateResponse | None:
    """Performs one step of a login."""
    body: sasl.SaslAuthenticateRequest = request.body
    authenticator = authenticator_of(services, request)
    if not request.listener.is_sasl or authenticator.is_complete():
        text = "SaslAuthenticate request received after successful authentication"
        return sasl.SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, text)
    try:
        answer = authenticator.authenticate(body.auth_bytes, services.timer.now_ms())
    except ApiException as error:
        refusal = sasl.SaslAuthenticateResponse(error.code, error.message)
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
    return sasl.SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=authenticator.session_lifetime_ms())


MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by their number in requests (Kafka's ScramMechanism)."""
MAX_ITERATIONS: Final = 16_384


def handle_describe_user_scram_credentials(
    services: BrokerServices, request: Request
) -> sasl.DescribeUserScramCredentialsResponse:
    body: sasl.DescribeUserScramCredentialsRequest = request.body
    check_cluster(services, request, AclOperation.DESCRIBE)
    known = services.credentials.all_scram()
    asked = Counter(user.name for user in body.users or ()) or Counter({user for _, user in known})
    return sasl.DescribeUserScramCredentialsResponse(
        results=tuple(_described_user(known, user, count) for user, count in asked.items())
    )


def _described_user(known: dict[ScramKey, ScramCredential], user: str, times: int) -> sasl.DescribeUserScramCredentialsResult:
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return sasl.DescribeUserScramCredentialsResult(user, ErrorCode.DUPLICATE_RESOURCE, text)
    infos = tuple(
        sasl.CredentialInfo(number, known[mechanism, user].iterations)
        for number, mechanism in MECHANISMS.items()
        if (mechanism, user) in known
    )
    if not infos:
        text = f"Attempt to describe a user credential that does not exist: {user}"
        return sasl.DescribeUserScramCredentialsResult(user, ErrorCode.RESOURCE_NOT_FOUND, text)
    return sasl.DescribeUserScramCredentialsResult(user, ErrorCode.NONE, "", infos)


def handle_alter_user_scram_credentials(services: BrokerServices, request: Request) -> sasl.AlterUserScramCredentialsResponse:
    """Changes SCRAM credentials, from the next login on (Kafka's ScramControlManager)."""
    body: sasl.AlterUserScramCredentialsRequest = request.body
    check_is_controller(services)
    check_cluster(services, request, AclOperation.ALTER)
    known = services.credentials.all_scram()
    changes: dict[str, tuple[ScramKey, ScramCredential | None]] = {}
    results: dict[str, sasl.AlterUserScramCredentialsResult] = {}
    asked: list[sasl.ScramCredentialDeletion | sasl.ScramCredentialUpsertion] = [*body.deletions, *body.upsertions]
    for each in asked:
        if each.name in results:
            continue  # its first error is reported
        try:
            if changes.pop(each.name, None) is not None:
                raise ApiException(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
            changes[each.name] = _credential_change(known, each)
        except ApiException as error:
            results[each.name] = sasl.AlterUserScramCredentialsResult(each.name, error.code, error.message)
    if changes:
        services.cluster.alter_scram(dict(changes.values()))
    changed = (sasl.AlterUserScramCredentialsResult(user, ErrorCode.NONE) for user in changes)
    return sasl.AlterUserScramCredentialsResponse(results=(*changed, *results.values()))


def _credential_change(
    known: Mapping[ScramKey, ScramCredential], asked: sasl.ScramCredentialDeletion | sasl.ScramCredentialUpsertion
) -> tuple[ScramKey, ScramCredential | None]:
    """Returns a validated change. Raises ApiException as ScramControlManager does."""
    if not asked.name:
        raise ApiException(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if asked.mechanism not in MECHANISMS:
        raise ApiException(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    key = MECHANISMS[asked.mechanism], asked.name
    if isinstance(asked, sasl.ScramCredentialDeletion):
        if key not in known:
            raise ApiException(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return key, None
    if asked.iterations < ITERATIONS:
        raise ApiException(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if asked.iterations > MAX_ITERATIONS:
        raise ApiException(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return key, of_salted_password(SCRAM_HASHES[key[0]], bytes(asked.salted_password), bytes(asked.salt), asked.iterations)


def handle_describe_acls(services: BrokerServices, request: Request) -> cluster.DescribeAclsResponse:
    check_cluster(services, request, AclOperation.DESCRIBE)
    if services.authorizer is None:
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    wanted = _filter(request.body)
    found: dict[tuple[ResourceType, str, PatternType], list[cluster.AclDescription]] = {}
    for acl in services.cluster.image.acls:
        if wanted.matches(acl):
            described = cluster.AclDescription(acl.principal, acl.host, acl.operation, acl.permission)
            found.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(described)
    return cluster.DescribeAclsResponse(
        resources=tuple(cluster.DescribeAclsResource(*where, tuple(each)) for where, each in found.items())
    )


def handle_create_acls(services: BrokerServices, request: Request) -> cluster.CreateAclsResponse:
    body: cluster.CreateAclsRequest = request.body
    _check_change(services, request)
    added: list[Acl] = []
    results = []
    for creation in body.creations:
        try:
            added.append(_new_acl(creation))
        except ApiException as error:
            results.append(cluster.AclCreationResult(error.code, error.message))
        else:
            results.append(cluster.AclCreationResult())
    if added:
        services.cluster.add_acls(added)
    return cluster.CreateAclsResponse(results=tuple(results))


def handle_delete_acls(services: BrokerServices, request: Request) -> cluster.DeleteAclsResponse:
    body: cluster.DeleteAclsRequest = request.body
    _check_change(services, request)
    filters = [_filter(each) for each in body.filters]
    # All filters see the state before the request, as in a single change of Kafka's controller.
    there = services.cluster.image.acls
    for each in filters:
        services.cluster.delete_acls(each)
    results = (tuple(_matching(acl) for acl in there if each.matches(acl)) for each in filters)
    return cluster.DeleteAclsResponse(
        filter_results=tuple(cluster.DeleteAclsFilterResult(matching_acls=matching) for matching in results)
    )


def _check_change(services: BrokerServices, request: Request) -> None:
    check_is_controller(services)
    check_cluster(services, request, AclOperation.ALTER)
    if services.authorizer is None:
        raise ApiException(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _new_acl(creation: cluster.AclCreation) -> Acl:
    """Returns the new ACL. Raises INVALID_REQUEST (`AclApis.handleCreateAcls`, `AclControlManager.validateNewAcl`)."""
    kind = _known(ResourceType, creation.resource_type, "resourceType")
    pattern = _known(PatternType, creation.resource_pattern_type, "patternType")
    operation = _known(AclOperation, creation.operation, "operation")
    permission = _known(Permission, creation.permission_type, "permissionType")
    for value, of_filters, what in (
        (kind, (ResourceType.ANY,), "resourceType"),
        (pattern, (PatternType.ANY, PatternType.MATCH), "patternType"),
        (operation, (AclOperation.ANY,), "operation"),
        (permission, (Permission.ANY,), "permissionType"),
    ):
        if value in of_filters:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"Invalid {what} {value.name}")
    if kind is ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise ApiException(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if ":" not in creation.principal:
        text = f"expected a string in format principalType:principalName but got {creation.principal}"
        raise ApiException(ErrorCode.INVALID_REQUEST, text)
    return Acl(creation.principal, operation, kind, creation.resource_name, pattern, permission, creation.host)


def _filter(asked: Any) -> AclFilter:
    """Returns the filter of a DescribeAclsRequest or a DeleteAclsFilter."""
    return AclFilter(
        _known(ResourceType, asked.resource_type_filter, "resourceType"),
        asked.resource_name_filter,
        _known(PatternType, asked.pattern_type_filter, "patternType"),
        asked.principal_filter,
        asked.host_filter,
        _known(AclOperation, asked.operation, "operation"),
        _known(Permission, asked.permission_type, "permissionType"),
    )


def _known(kind: Any, code: int, what: str) -> Any:
    """Returns the value of a code. A request with an unknown code cannot be parsed, as in Kafka."""
    try:
        return kind(code)
    except ValueError:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Unknown {what} {code}") from None


def _matching(acl: Acl) -> cluster.DeleteAclsMatchingAcl:
    return cluster.DeleteAclsMatchingAcl(
        ErrorCode.NONE,
        None,
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )
