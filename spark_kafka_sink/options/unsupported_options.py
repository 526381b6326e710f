"""Options of Java's `ProducerConfig` (Kafka 4.1) or of librdkafka that the producer does not have.

Four are consumer options: the settings that cloud services offer for copying contain them.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.options.security_config import UNSECURED

# These change neither delivery nor security, so they are ignored with a warning.
HARMLESS: Mapping[str, str] = {
    "auto.include.jmx.reporter": "there is no JMX here; register(spark) returns the metrics",
    "client.dns.lookup": "every address of a name is tried in turn",
    "config.providers.automatic": "only the providers in config.providers are used",
    "metric.reporters": "register(spark) returns the metrics",
    "metrics.recording.level": "register(spark) returns the metrics",
    "sasl.kerberos.kinit.cmd": "tickets come from the system's Kerberos library",
    "sasl.kerberos.min.time.before.relogin": "tickets come from the system's Kerberos library",
    "sasl.kerberos.ticket.renew.jitter": "tickets come from the system's Kerberos library",
    "sasl.kerberos.ticket.renew.window.factor": "tickets come from the system's Kerberos library",
    **dict.fromkeys(
        (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope.claim.name",
        ),
        "brokers validate tokens; a client only sends them",
    ),
    **dict.fromkeys(
        ("group.id", "heartbeat.interval.ms", "max.poll.interval.ms", "session.timeout.ms"),
        "only consumers have it",
    ),
    "statistics.interval.ms": "register(spark) returns the metrics",
    "ssl.ca.certificate.stores": "it applies to Windows only",
    "ssl.keymanager.algorithm": "there is no JVM here; keys are read by OpenSSL",
    "ssl.secure.random.implementation": "there is no JVM here; OpenSSL makes random numbers",
    "ssl.trustmanager.algorithm": "there is no JVM here; certificates are checked by OpenSSL",
}

# Ignoring one of these would send other bytes, to another place, or in another way than configured.
REFUSED: Mapping[str, str] = {
    "https.ca.pem": "write the certificates to a file, and name it with sasl.oauthbearer.ca.location",
    "sasl.login.class": "Java classes cannot run here: use a Python callable as sasl.oauthbearer.token.provider",
    "sasl.oauthbearer.config": UNSECURED,
    "sasl.oauthbearer.metadata.authentication.type": "use sasl.oauthbearer.token.provider=azure or aws",
    "security.providers": "Java security providers cannot run here",
    "ssl.certificate.verify_cb": "certificates are always verified: name the authority with ssl.ca.location",
    "ssl.crl.location": "certificate revocation lists are not supported",
    "ssl.curves.list": "curves cannot be chosen: OpenSSL's defaults apply",
    "ssl.engine.factory.class": "Java classes cannot run here: name key and authorities with the other ssl.* options",
    "ssl.engine.id": "OpenSSL's engines are not supported",
    "ssl.engine.location": "OpenSSL's engines are not supported",
    "ssl.provider": "Java security providers cannot run here",
    "ssl.providers": "choose OpenSSL's providers in OpenSSL's configuration file",
    "ssl.sigalgs.list": "signature algorithms cannot be chosen: OpenSSL's defaults apply",
    "transaction.two.phase.commit.enable": "the sink's own commit log serves this purpose",
}

REFUSED_PREFIXES: Mapping[str, str] = {
    "sasl.oauthbearer.assertion.": "assertions are not supported: use client credentials, or a Python callable as"
    " sasl.oauthbearer.token.provider",
}


def why_refused(name: str) -> str | None:
    """Returns why the option `name` (without `kafka.`) must not be ignored, or None if it may be."""
    for prefix, reason in REFUSED_PREFIXES.items():
        if name.startswith(prefix) and name not in HARMLESS:
            return reason
    return REFUSED.get(name)
