"""Makes docs/options.md from the tables that the code itself uses, so that the page and the code cannot differ."""

from __future__ import annotations

import re
from collections.abc import Iterable

from docs.markdown import table
from spark_kafka_sink.config import OPTIONS
from spark_kafka_sink.option import ABSENT, INT64_MAX, LIBRDKAFKA_NAMES, REQUIRED, Kind, Option
from spark_kafka_sink.registry.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.security_config import ALIASES, ONE_VALUE, SECURITY_OPTIONS
from spark_kafka_sink.spark.options import HARMLESS, REFUSED, REFUSED_PREFIXES, SINK_OPTIONS

HEAD = """# Options

This page is generated from the code. Producer options have the names and units of Kafka 4.1's Java
producer. Times are in milliseconds and sizes in bytes unless the text says otherwise.

- In Spark (`format("kafka_sink")`, `publish`, `foreach_batch`, `partition_writer`), write producer
  options with the prefix `kafka.`, such as `kafka.batch.size`. The sink's own options have no prefix.
- In `Producer(settings)`, write producer options as they are named here. The sink's own options do
  not exist there, except for `max.bytes.per.second`, `max.records.per.second`
  and `timestamp.unit`.

A value may be text or have the Python type that fits. An unknown option raises
[`[OPTION]`](troubleshooting.md#option) with a suggestion.
"""
SINK = """
## Sink options

"""
REGISTRY = """
## Schema registry options

These options connect to a [schema registry](schemas.md). They have no prefix `kafka.` in Spark.
Options that begin with `schema.registry.basic.auth.` or `schema.registry.bearer.auth.` can also be
written without `schema.registry.`.

"""
PRODUCER = """
## Producer options

[Serializers](serializers.md) and [partitioners](partitioners.md) have their own pages.

"""
SECURITY = """
## Security options

These are the producer's options for TLS, SASL, tokens and proxies. They have the names of Java's
client, or those of librdkafka where Java's client has no such option. In Spark, write them with the
prefix `kafka.`. The [security](security.md) page shows which ones you need for your cluster.

A value can contain references in Kafka's syntax:

| reference | stands for |
| --- | --- |
| `${env:NAME}` | an environment variable |
| `${file:/path:name}` | a value in a properties file |
| `${directory:/path:file}` | the content of a file |

- The text options of this section keep their references. Each process reads a reference when it
  uses it: the driver program, and the Python workers on the executors. A file that is replaced is
  read at the next login.
- References in the producer's other options are read once, by the process that checks the options.
  With the sink, this process runs on the driver's host.
- A reference that cannot be resolved raises an error. Kafka would use the reference itself as the
  password.
- The three providers exist without being configured. `config.providers` replaces them, as in Kafka.
  It lists names, and `config.providers.NAME.class` is Kafka's `EnvVarConfigProvider`,
  `FileConfigProvider` or `DirectoryConfigProvider`.
- `config.providers.NAME.param.allowlist.pattern` and `config.providers.NAME.param.allowed.paths`
  work as in Kafka.
- `${directory:...}` drops a newline at the end of the file. Kafka keeps it.
- A value that contains text such as `${a:b}` itself must be given by a reference.

Options marked as secret never appear in a log, an error, a metric or a `repr`.

"""
OTHER_NAMES = """
### Other names

These names of librdkafka and older clients are accepted.

"""
ONE = """
### Options with one accepted value

"""
JAVA = """
## Unsupported options

`Producer(settings)` raises an error for these options of Java's client and librdkafka, as for any
unknown option. The sink also accepts settings that were written for Spark's own Kafka sink. It
ignores an option, with one warning, if that changes neither delivery nor security. It raises an
error for the others.

"""


LIBRDKAFKA = """
## Coming from librdkafka

librdkafka and confluent-kafka accept most of Kafka's names. These other names of theirs raise an
error, which names the replacement.

"""


def options_page() -> str:
    sink = "\n".join(_sink_entry(*option) for option in SINK_OPTIONS.values())
    security = f"{SECURITY}{_entries(SECURITY_OPTIONS.values())}{OTHER_NAMES}{_names_table()}{ONE}{_one_value_table()}"
    others = f"{LIBRDKAFKA}{_librdkafka_table()}{JAVA}{_java_table()}"
    registry = f"{REGISTRY}{_entries(REGISTRY_OPTIONS.values())}"
    return f"{HEAD}{SINK}{sink}{registry}{PRODUCER}{_entries(_of_producer())}{security}{others}"


def _of_producer() -> Iterable[Option]:
    """Returns the producer's options without those that are the sink's as well, which have their entries there."""
    return (option for name, option in OPTIONS.items() if name not in SINK_OPTIONS)


def _sink_entry(name: str, takes: str, default: str, doc: str, differs: str) -> str:
    shown = default if not default or default.startswith("`") else f"`{default}`"
    return _entry(name, doc, [("Takes", takes), ("Default", shown or "not set"), ("Spark's own Kafka sink", differs)])


def _entries(options: Iterable[Option]) -> str:
    return "\n".join(map(_producer_entry, options))


def _producer_entry(option: Option) -> str:
    secret = " (secret)" if option.kind.is_secret else ""
    same = option.java == option.default and option.java is not REQUIRED
    facts = [
        ("Takes", _wanted(option.kind) + secret),
        ("Default", _default(option.kind, option.default) + (", as in Java" if same else "")),
        ("Java's default", "" if option.java in (option.default, ABSENT) else _default(option.kind, option.java)),
        ("Different from Java", option.differs),
    ]
    absent = "- Java's client has no such option\n" if option.java is ABSENT else ""
    return _entry(option.name, option.doc, facts) + absent


def _entry(name: str, doc: str, facts: Iterable[tuple[str, str]]) -> str:
    """Returns an option's section. Its heading is the option's name, so that links to it never change."""
    return f"### {name}\n\n{doc}\n\n" + "".join(f"- {what}: {said}\n" for what, said in facts if said)


def _wanted(kind: Kind) -> str:
    return kind.wanted.replace(f" to {INT64_MAX}", " up")


def _names_table() -> str:
    return table(["option", "the same as"], ([f"`{name}`", f"`{meant}`"] for name, meant in ALIASES.items()))


def _librdkafka_table() -> str:
    rows = ([f"`{name}`", re.sub(r"\{0\}([a-z0-9.]+)", r"`\1`", use)] for name, use in LIBRDKAFKA_NAMES.items())
    return table(["librdkafka", "here"], rows)


def _one_value_table() -> str:
    rows = ([f"`{name}`", ", ".join(f"`{each}`" for each in one.accepted), one.reason] for name, one in ONE_VALUE.items())
    return table(["option", "accepted", "reason"], rows)


def _java_table() -> str:
    refused = {**REFUSED, **{f"{prefix}*": reason for prefix, reason in REFUSED_PREFIXES.items()}}
    said = {
        **{name: ("ignores it", reason) for name, reason in HARMLESS.items()},
        **{name: ("raises an error", reason) for name, reason in refused.items()},
    }
    return table(["option", "the sink", "reason"], ([f"`{name}`", *said[name]] for name in sorted(said)))


def _default(kind: Kind, value: object) -> str:
    if value is REQUIRED:
        return "none; the option is required"
    return "not set" if value in (None, (), "") else f"`{kind.text(value)}`"
