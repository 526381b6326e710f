"""docs/options.md: every option from the tables that the code itself uses, so that the page and the code cannot differ."""

from __future__ import annotations

from collections.abc import Iterable

from docs.markdown import table
from spark_kafka_sink.config import OPTIONS
from spark_kafka_sink.option import ABSENT, REQUIRED, Kind, Option
from spark_kafka_sink.security_config import ALIASES, ONE_VALUE, SECURITY_OPTIONS
from spark_kafka_sink.spark.options import HARMLESS, REFUSED, REFUSED_PREFIXES, SINK_OPTIONS

HEAD = """# Options

Made from the code by `make docs`. Names and units are those of Kafka 4.1's Java producer: ms are milliseconds, sizes are bytes.

`Producer(settings)` takes the producer's options by their names here. `format("kafka_sink")`, `publish`, `foreach_batch` and
`partition_writer` take them with the prefix `kafka.`, and the sink's own without. A value may be text. An unknown option is an
error that names the nearest known one. [Serializers](serializers.md) and [partitioners](partitioners.md) have pages of their own.
"""
SINK = """
## The sink's

"""
PRODUCER = """
## The producer's

"""
SECURITY = """
## Security

The producer's options for TLS, SASL, tokens and proxies, by the names of Java's client and of librdkafka.

A value may be a reference, or contain some, with Kafka's syntax: `${env:NAME}` is an environment variable,
`${file:/path:name}` is a value of a properties file, and `${directory:/path:file}` is the content of a file.

* The text options of this section keep their references. Each process reads them when it uses them: the driver program, and the
  Python workers on the executors. A file that is replaced is read at the next login.
* The producer's other options are read once, by the process that checks them. With the sink, this is on the driver's host.
* A reference that cannot be resolved is an error. Kafka would use the reference itself as the password.
* The three providers exist without being configured. `config.providers` replaces them, as in Kafka: it lists names, and
  `config.providers.NAME.class` is Kafka's EnvVarConfigProvider, FileConfigProvider or DirectoryConfigProvider.
  `config.providers.NAME.param.allowlist.pattern` and `config.providers.NAME.param.allowed.paths` work as in Kafka.
* `${directory:...}` drops a line end at the end of the file. Kafka keeps it.
* A value that itself contains text such as `${a:b}` must be given by a reference.

Values of the kind "one or more characters, never shown" appear in no log, error, metric or `repr`.

"""
OTHER_NAMES = """
These other names are accepted.

"""
ONE = """
These options are accepted with one value only.

"""
JAVA = """
## Options that are not supported

`Producer(settings)` refuses these options of Java's and librdkafka's clients as unknown. The sink accepts settings that were
written for Spark's own Kafka sink. It ignores an option, with one warning, if that changes neither delivery nor security, and
refuses the others.

"""


def options_page() -> str:
    security = f"{SECURITY}{_table_of(SECURITY_OPTIONS.values())}{OTHER_NAMES}{_names_table()}{ONE}{_one_value_table()}"
    return f"{HEAD}{SINK}{_sink_table()}{PRODUCER}{_table_of(OPTIONS.values())}{security}{JAVA}{_java_table()}"


def _sink_table() -> str:
    rows = ([f"`{row.name}`", row.takes, row.default or "not set", row.doc, row.differs] for row in SINK_OPTIONS.values())
    return table(["option", "takes", "default", "what it does", "what Spark's own Kafka sink does"], rows)


def _table_of(options: Iterable[Option]) -> str:
    rows = (
        [
            f"`{option.name}`",
            f"{option.kind.wanted}, never shown" if option.kind.is_secret else option.kind.wanted,
            _default(option.kind, option.default),
            _default(option.kind, option.java),
            option.doc,
            option.differs,
        ]
        for option in options
    )
    return table(["option", "takes", "default", "Java's default", "what it does", "what Java does differently, and why"], rows)


def _names_table() -> str:
    return table(["option", "the same as"], ([f"`{name}`", f"`{meant}`"] for name, meant in ALIASES.items()))


def _one_value_table() -> str:
    rows = ([f"`{name}`", ", ".join(f"`{each}`" for each in one.accepted), one.reason] for name, one in ONE_VALUE.items())
    return table(["option", "accepted", "because"], rows)


def _java_table() -> str:
    refused = {**REFUSED, **{f"{prefix}*": reason for prefix, reason in REFUSED_PREFIXES.items()}}
    said = {
        **{name: ("ignored", reason) for name, reason in HARMLESS.items()},
        **{name: ("refused", reason) for name, reason in refused.items()},
    }
    return table(["option", "the sink", "because"], ([f"`{name}`", *said[name]] for name in sorted(said)))


def _default(kind: Kind, value: object) -> str:
    if value is REQUIRED:
        return "required"
    if value is ABSENT:
        return "Java has no such option"
    return "not set" if value in (None, (), "") else f"`{kind.text(value)}`"
