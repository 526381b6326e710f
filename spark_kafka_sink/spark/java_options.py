"""What Java's `ProducerConfig` (Kafka 4.1) knows and this producer does not, and what ignoring each would change."""

from __future__ import annotations

from collections.abc import Mapping

# Nothing that is delivered, and nothing about who may read it, depends on these: ignored with a warning.
HARMLESS: Mapping[str, str] = {
    "auto.include.jmx.reporter": "there is no JMX here; register(spark) returns the metrics",
    "client.dns.lookup": "every address of a name is tried in turn",
    "config.providers.automatic": "no configuration providers exist here",
    "enable.metrics.push": "no client metrics are pushed to brokers",
    "metric.reporters": "register(spark) returns the metrics",
    "metrics.recording.level": "register(spark) returns the metrics",
}

# Ignoring one of these would send other bytes, to another place, or in another way than was asked for.
REFUSED: Mapping[str, str] = {
    "config.providers": "configuration providers are not supported: give the values themselves",
    "security.providers": "Java security providers cannot run here",
    "transaction.two.phase.commit.enable": "the sink's own commit log does what it is for",
}

# Options of a producer that are not a sink's to be given.
SET_BY_THE_SINK: Mapping[str, str] = {
    "transactional.id": "tasks must not share one: use delivery.guarantee=exactly-once, which names a transaction for each task,"
    " and transactional.id.prefix for what the names begin with"
}

# What it may be is checked, and no more.
ONLY_PLAINTEXT = "only PLAINTEXT is supported yet, no TLS and no SASL"

REFUSED_PREFIXES: Mapping[str, str] = {
    "config.providers.": REFUSED["config.providers"],
    "sasl.": "SASL is not supported yet: only security.protocol=PLAINTEXT",
    "ssl.": "TLS is not supported yet: only security.protocol=PLAINTEXT",
}


def why_refused(name: str) -> str | None:
    """Why `name` (without `kafka.`) must not be ignored; None when it is not one of those."""
    for prefix, reason in REFUSED_PREFIXES.items():
        if name.startswith(prefix) and name not in HARMLESS:
            return reason
    return REFUSED.get(name)
