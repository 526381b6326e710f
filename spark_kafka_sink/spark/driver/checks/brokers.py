"""Checks of connections: brokers and their advertised addresses, TLS, and the login."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from spark_kafka_sink.client.api_versions import api_versions_request, node_api_versions
from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.cluster_requests import ClusterRequest
from spark_kafka_sink.client.connection_probe import NOT_REACHED, HostPort, ProbedConnection, probe_connections
from spark_kafka_sink.client.connection_states import bootstrap_nodes
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthenticationError, KafkaSinkError
from spark_kafka_sink.network.channel import address_text
from spark_kafka_sink.options.security_config import security_warnings
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, ApiVersionsResponse
from spark_kafka_sink.security.acls import ANONYMOUS, principal_of
from spark_kafka_sink.spark.driver.checks.context import CheckContext, SkippedError
from spark_kafka_sink.spark.driver.checks.report import CheckLine, failed, failed_by, ok

_SOON_EXPIRED_DAYS: Final = 14
_DAY_S: Final = 86_400

_NOT_ADVERTISED: Final = (
    "clients write to the address that a broker advertises, not to bootstrap.servers: make {address} reachable from here, or"
    " correct advertised.listeners on broker {id} (usual behind Docker, Kubernetes or a proxy)"
)


def check_brokers(context: CheckContext) -> Iterator[CheckLine]:
    """Connects to bootstrap.servers, then to each broker that metadata names."""
    config = context.client.config
    servers = {(node.host, node.port): node for node in bootstrap_nodes(config.bootstrap_servers).values()}
    context.probed |= probe_connections(config, servers, context.soon())
    lost = {where: said for where in servers if isinstance(said := context.probed[where], KafkaSinkError)}
    if len(lost) == len(servers):
        if all(isinstance(error, AuthenticationError) for error in lost.values()):
            yield ok("brokers", "bootstrap.servers accept connections")  # the next step tells about TLS
            return
        for where, error in lost.items():
            yield failed("brokers", f"bootstrap server {address_text(*where)}: {error.message}", NOT_REACHED, error.link)
        return
    if lost:
        context.ask_only(servers.keys() - lost.keys())
    try:
        nodes = context.client.brokers(context.soon())
    except AuthenticationError as error:
        context.login_error = error
        yield ok("brokers", "bootstrap.servers accept connections")
        return
    except KafkaSinkError as error:
        nodes = context.client.known().nodes  # as a bootstrap server named them; none of them may answer
        if not nodes:
            yield failed_by("brokers", error, NOT_REACHED)
            return
    yield from _check_advertised(context, nodes)
    dead = ", ".join(f"{address_text(*where)} ({error.message})" for where, error in lost.items())
    if context.nodes:
        found = ", ".join(map(str, context.nodes.values()))
        hint = f"bootstrap.servers that cannot be reached: {dead}" if dead else ""
        answered = f"{len(context.nodes)} of {counted(len(nodes), 'broker')} answered"
        releases = " and ".join(dict.fromkeys(each.release for each in context.versions))
        yield ok("brokers", f"{answered}: {found}; protocol of Kafka {releases}", hint)


def _check_advertised(context: CheckContext, nodes: Mapping[int, Node]) -> Iterator[CheckLine]:
    """Yields a cross for each broker that cannot be asked, and notes those that can."""
    advertised = {(node.host, node.port) for node in nodes.values()}
    context.probed |= probe_connections(context.client.config, advertised - context.probed.keys(), context.soon())
    reached: dict[int, Node] = {}
    for node_id, node in sorted(nodes.items()):
        said = context.probed[node.host, node.port]
        if isinstance(said, ProbedConnection):
            reached[node_id] = node
        elif not isinstance(said, AuthenticationError):
            yield _not_reached(node, said)
    requests = [ClusterRequest(node_id, API_VERSIONS, api_versions_request()) for node_id in reached]
    answers = context.client.try_many(requests, context.soon())
    answering: dict[int, Node] = {}
    for (node_id, node), answer in zip(reached.items(), answers, strict=True):
        if isinstance(answer, ApiVersionsResponse):
            answering[node_id] = node
            context.versions.append(node_api_versions(str(node), answer))
        elif isinstance(answer, AuthenticationError):
            context.login_error = answer
        elif isinstance(answer, KafkaSinkError):
            yield _not_reached(node, answer)
    context.nodes = answering


def _not_reached(node: Node, error: KafkaSinkError) -> CheckLine:
    address = address_text(node.host, node.port)
    text = f"broker {node.id} advertises {address}, which cannot be reached from here: {error.message}"
    return failed("brokers", text, _NOT_ADVERTISED.format(address=address, id=node.id), error.link)


# TLS


def check_tls(context: CheckContext) -> Iterator[CheckLine]:
    """Checks the security protocol and the certificates of the brokers."""
    security = context.options.producer.security
    if not security.uses_tls and not security.uses_sasl and context.login_error is not None:
        yield failed_by("TLS", context.login_error)  # without a login it is the protocol that does not fit
        return
    if not security.uses_tls:
        yield ok("TLS", f"not used (security.protocol={security.security_protocol})")
        return
    connections = {where: said for where, said in context.probed.items() if isinstance(said, ProbedConnection)}
    rejected = {where: said for where, said in context.probed.items() if isinstance(said, AuthenticationError)}
    for error in rejected.values():
        yield failed_by("TLS", error)
    if connections:
        yield _certificates(connections, verifies_names=bool(security.ssl_endpoint_identification_algorithm))
    elif not rejected:
        raise SkippedError("no broker accepts connections")


def _certificates(connections: Mapping[HostPort, ProbedConnection], *, verifies_names: bool) -> CheckLine:
    protocols = " and ".join(sorted({each.tls for each in connections.values()}))
    dated = {where: each.certificate for where, each in connections.items() if "notAfter" in each.certificate}
    hints = [] if verifies_names else ["host names are not verified: ssl.endpoint.identification.algorithm is empty"]
    if not dated:
        return ok("TLS", protocols, "; ".join(hints))
    where = min(dated, key=lambda each: ssl.cert_time_to_seconds(dated[each]["notAfter"]))
    certificate = dated[where]
    ends_s = ssl.cert_time_to_seconds(certificate["notAfter"])
    days = int((ends_s - time.time()) // _DAY_S)
    day = datetime.fromtimestamp(ends_s, UTC).date()
    if days < _SOON_EXPIRED_DAYS:
        hints.append(f"renew the certificate of {address_text(*where)} before {day}")
    which = "the certificate" if len(connections) == 1 else "the first certificate to expire"
    valid = f"valid until {day} ({counted(days, 'day')})"
    text = f"{protocols}; {which} is that of {address_text(*where)}, for {_names(certificate)}, {valid}"
    return ok("TLS", text, "; ".join(hints))


def _names(certificate: Mapping[str, Any]) -> str:
    names = [str(value) for _, value in certificate.get("subjectAltName", ())]
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "") if names else "no host name"


# The login


def check_login(context: CheckContext) -> Iterator[CheckLine]:
    """Checks the login, and reports the principal that the brokers see."""
    producer = context.options.producer
    security = producer.security
    if context.login_error is not None and (security.uses_sasl or security.uses_tls):
        yield failed_by("login", context.login_error)
        return
    if not context.nodes:
        raise SkippedError("no broker answers requests")
    principal = principal_of(producer.bootstrap_servers, security)
    hint = "; ".join(security_warnings(security))
    if security.uses_sasl:
        who = principal or "the brokers accepted the login"
        yield ok("login", f"{who}, by {security.sasl_mechanism}", hint)
    elif principal == ANONYMOUS:
        yield ok("login", f"no login: brokers see {ANONYMOUS}", hint)
    else:
        yield ok("login", f"{principal or 'a client certificate'}, by client certificate if the brokers ask for one", hint)
