"""Declaration of an option: its name, accepted values, default, Java's default, and description. Hints for unknown options."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from spark_kafka_sink.errors import OptionError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# Option.default and Option.java if there is no default.
REQUIRED: Any = object()
# Option.java if Java has no such option.
ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Kind:
    """A type with a range of values.

    Attributes:
        wanted: description of the accepted values, for error messages.
        read: returns the parsed value; raises ValueError if it is not accepted.
        words: values that are written as words, by word.
        is_secret: no error may show the value.
        keeps_references: references such as `${env:NAME}` are kept until the value is used. Otherwise they are resolved first.
    """

    wanted: str
    read: Callable[[object], Any]
    words: Mapping[str, object] = field(default_factory=dict)
    is_secret: bool = False
    keeps_references: bool = False

    def parse(self, option: str, value: object) -> Any:
        """Returns the parsed value of `option`. Raises OptionError if it is not accepted."""
        try:
            return self.read(value)
        except ValueError:
            shown = "the value" if self.is_secret else repr(value)
            raise OptionError(f"option {option}: {shown} is not {self.wanted}", option=option) from None

    def text(self, value: object) -> str:
        """Returns a value as users write it."""
        if isinstance(value, tuple):
            return ",".join(str(part) for part in value)
        return next((word for word, meaning in self.words.items() if meaning == value), str(value))


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        default: parsed default. None means not set; REQUIRED means that there is no default.
        java: Java's default, likewise; ABSENT if Java has no such option.
        doc: description.
        differs: how Java differs, and the reason; empty if it does not.
    """

    name: str
    kind: Kind
    default: object
    java: object
    doc: str
    differs: str = ""

    def parse(self, value: object) -> Any:
        """Returns the parsed value. Raises OptionError if it is not accepted."""
        return self.kind.parse(self.name, value)


class SinkOption(NamedTuple):
    """An option of the sink itself, in words. differs: what Spark's own Kafka sink does differently."""

    name: str
    takes: str
    default: str
    doc: str
    differs: str = ""


_AS_HERE: Any = object()


def declared(name: str, kind: Kind, default: object, doc: str, *, java: object = _AS_HERE, differs: str = "") -> Any:
    """Returns a dataclass field that declares an option. A dataclass of such fields is a table of options."""
    option = Option(name, kind, default, default if java is _AS_HERE else java, doc, differs)
    if default is REQUIRED:
        return field(metadata={"option": option})
    return field(default=default, metadata={"option": option})


# librdkafka's options that are named differently here, with {0} for a prefix. The most similar name would often be a wrong one.
LIBRDKAFKA_NAMES: Mapping[str, str] = {
    "batch.num.messages": "{0}batch.size, which is in bytes",
    "compression.codec": "{0}compression.type",
    "compression.level": "{0}compression.gzip.level, {0}compression.lz4.level or {0}compression.zstd.level",
    "max.in.flight": "{0}max.in.flight.requests.per.connection",
    "message.max.bytes": "{0}max.request.size",
    "message.send.max.retries": "{0}retries",
    "message.timeout.ms": "{0}delivery.timeout.ms",
    "metadata.broker.list": "{0}bootstrap.servers",
    "partitioner": "{0}partitioner.class",
    "queue.buffering.max.kbytes": "{0}buffer.memory, which is in bytes",
    "queue.buffering.max.messages": "{0}buffer.memory, which is in bytes",
    "queue.buffering.max.ms": "{0}linger.ms",
    "request.required.acks": "{0}acks",
    "socket.receive.buffer.bytes": "{0}receive.buffer.bytes",
    "socket.send.buffer.bytes": "{0}send.buffer.bytes",
    "socket.timeout.ms": "{0}request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "{0}metadata.max.age.ms",
}


def replacement(name: str, prefix: str = "") -> str:
    """Returns what to use in place of an option of other clients, such as `; use linger.ms`, or an empty string.

    Args:
        name: the option, without the prefix.
        prefix: what the user writes before Kafka's options.
    """
    return f"; use {LIBRDKAFKA_NAMES[name].format(prefix)}" if name in LIBRDKAFKA_NAMES else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean X?`, or an empty string if no known name is similar."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Kafka's Topic.validate. A name that is not text must not reach the sender thread, which would fail to encode it."""


def topic_problem(topic: object) -> str | None:
    """Returns why a topic name is invalid; None if it is valid."""
    if isinstance(topic, str) and _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return None
    return f"{topic!r} is not a valid topic name: it must have 1 to 249 of the characters a-z A-Z 0-9 . _ -"


def topic_name(option: str, value: object) -> str:
    """Returns the value of `option` if it is a valid topic name. Raises `OptionError` if it is not."""
    if (problem := topic_problem(value)) is not None:
        raise OptionError(f"option {option}: {problem}", option=option)
    return str(value)


def integer(low: int, high: int = INT32_MAX) -> Kind:
    """Accepts an integer or its decimal text, from `low` to `high` inclusive."""
    return _numeric("a whole number", int, low, high)


def number(low: float, high: float) -> Kind:
    """Accepts a number or its decimal text, from `low` to `high` inclusive."""
    return _numeric("a number", float, low, high)


def _numeric(what: str, kind: type[int] | type[float], low: float, high: float) -> Kind:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, kind | int | str) or not low <= kind(value) <= high:
            raise ValueError
        return kind(value)

    return Kind(f"{what} from {low} to {high}", read)


def one_of(**meanings: object) -> Kind:
    """Accepts one of the given words in any case, and reads it as its meaning."""

    def read(value: object) -> object:
        text = str(value).strip().lower()
        if text not in meanings:
            raise ValueError
        return meanings[text]

    return Kind("one of " + ", ".join(meanings), read, meanings)


def one_name_of(*names: str) -> Kind:
    """Accepts one of the given names in any case, and reads it in the spelling given here."""
    by_lower = {name.lower(): name for name in names}

    def read(value: object) -> str:
        text = str(value).strip().lower()
        if text not in by_lower:
            raise ValueError
        return by_lower[text]

    return Kind("one of " + ", ".join(names), read)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _filled(value: object) -> str:
    if not value:
        raise ValueError
    return _text(value)


def _servers(value: object) -> tuple[str, ...]:
    """Accepts `host:port,host:port` or a sequence of `host:port`. IPv6 addresses are in brackets.

    As in Java (Utils.getHost), a protocol prefix such as SSL:// is ignored: security.protocol decides.
    """
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    servers = tuple(str(part).strip().rpartition("://")[2] for part in parts if str(part).strip())
    for server in servers:
        if ":" not in server or server.endswith((":", "]")):
            text = f"option bootstrap.servers: {server!r} has no port: write {server.rstrip(':')}:9092"
            raise OptionError(text, option="bootstrap.servers")
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError
    if not servers:
        raise ValueError
    return servers


def _plugin(value: object) -> object:
    """Accepts a name, a class or an object. The user of the option resolves it."""
    if value is None or isinstance(value, bool | int | float | list | tuple | dict) or not value:
        raise ValueError
    return value.strip() if isinstance(value, str) else value


def _plugins(value: object) -> tuple[object, ...]:
    """Accepts comma-separated names, or a sequence of names, classes and objects."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else (value,)
    return tuple(_plugin(part) for part in parts if not (isinstance(part, str) and not part.strip()))


MILLISECONDS = integer(0, INT64_MAX)
TEXT = Kind("a string", _text)
FILLED = Kind("a non-empty string", _filled)  # Java's NonEmptyString
BOOLEAN = one_of(true=True, false=False)
CODECS = one_of(**{name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")})
ACKS = one_of(**{"all": -1, "-1": -1, "0": 0, "1": 1})  # all is -1, as on the wire
SERVERS = Kind("a comma-separated list of host:port", _servers)
PLUGIN = Kind("a short name, a dotted name, a class or an object", _plugin)
PLUGINS = Kind("a comma-separated list of dotted names, or a list of classes or objects", _plugins)
TIME_UNITS = one_of(**{unit: unit for unit in ("ms", "s", "us", "ns")})
RECOVERY = one_of(rebootstrap="rebootstrap", none="none")


# Options of Java's `ProducerConfig` (Kafka 4.1) or of librdkafka that the producer does not have. Four are consumer options: the
# settings that cloud services offer for copying contain them.

UNSECURED: Final = (
    "an unsecured token, for tests, is set with sasl.jaas.config and unsecuredLoginStringClaim_sub, any other with"
    " sasl.oauthbearer.token"
)

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
        ("group.id", "heartbeat.interval.ms", "max.poll.interval.ms", "session.timeout.ms"), "only consumers have it"
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
    " sasl.oauthbearer.token.provider"
}


def why_refused(name: str) -> str | None:
    """Returns why the option `name` (without `kafka.`) must not be ignored, or None if it may be."""
    for prefix, reason in REFUSED_PREFIXES.items():
        if name.startswith(prefix) and name not in HARMLESS:
            return reason
    return REFUSED.get(name)
