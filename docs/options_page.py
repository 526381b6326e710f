"""Makes the pages of options from the tables that the code itself uses, so that the pages and the code cannot differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from docs.markdown import anchor, table
from spark_kafka_sink.options.option import (
    ABSENT,
    HARMLESS,
    INT32_MAX,
    INT64_MAX,
    LIBRDKAFKA_NAMES,
    REFUSED,
    REFUSED_PREFIXES,
    REQUIRED,
    Kind,
    Option,
)
from spark_kafka_sink.options.producer_options import OPTIONS
from spark_kafka_sink.options.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.options.security_config import ALIASES, ONE_VALUE, SECURITY_OPTIONS
from spark_kafka_sink.options.sink_options import SINK_OPTIONS
from spark_kafka_sink.options.sink_schema_options import SCHEMA_SINK_OPTIONS

HEAD = """# Options

Producer options have the names and units of Kafka 4.1's Java producer. Times are in milliseconds and
sizes in bytes unless the text says otherwise.

- In Spark (`format("kafka_sink")`, `publish`, `foreach_batch`, `partition_writer`), write producer
  and security options with the prefix `kafka.`, such as `kafka.batch.size`. The sink's own options
  and those of the schema registry have no prefix.
- In `Producer(settings)`, write producer options as they are named here. The sink's own options do
  not exist there, except for `max.bytes.per.second`, `max.records.per.second`, `timestamp.unit` and
  those of [schemas](schemas.md).

A value may be text or have the Python type that fits. An unknown option raises
[`[OPTION]`](troubleshooting.md#option) with a suggestion. An option without a default is not set.

[Other names](options-other.md) lists accepted synonyms and the options of Java, librdkafka and
Spark's own sink that do not exist here. These pages are generated from the code.
"""
SINK = """# Sink options

These are the options of [the sink](options.md), without a prefix. Spark's own Kafka sink has no such
options unless an entry says otherwise. Those of [schemas](options-schemas.md) have their own page.
"""
SCHEMAS = """# Schema options

These are the options for [schemas](schemas.md) and the connection to their registry. They have no
prefix `kafka.` in Spark.

In front of the options from `reference.subject.name.strategy` to `skip.known.types`, `key.` or
`value.` applies them to one of both.
"""
REGISTRY = """
Options that begin with `schema.registry.basic.auth.` or `schema.registry.bearer.auth.` can also be
written without `schema.registry.`. TLS has the options of brokers with `schema.registry.` in front, such
as `schema.registry.ssl.truststore.location`. Meaning, values and defaults are the same. They are links:
"""
PRODUCER = """# Producer options

In Spark, write these [options](options.md) with the prefix `kafka.`.
"""
SECURITY = """# Security options

These are the producer's [options](options.md) for TLS, SASL, tokens and proxies. They have the names
of Java's client, or those of librdkafka where Java's client has no such option. In Spark, write them
with the prefix `kafka.`. The [security](security.md) page shows which ones you need for your cluster.

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
OTHER = """# Other names

## Accepted synonyms

These names of librdkafka and older clients are accepted.

"""
ONE = """
## Options with one accepted value

"""
JAVA = """
## Unsupported options

`Producer(settings)` raises an error for these options of Java's client and librdkafka. The sink raises an
error for those that would change delivery or security:

"""
IGNORED = """
It ignores the others, with one warning:

"""


LIBRDKAFKA = """
## Coming from librdkafka

librdkafka and confluent-kafka accept most of Kafka's names. These other names of theirs raise an
error, which names the replacement.

"""


_ANY = re.compile(
    "a string|a non-empty string|text|the text of a schema|a topic name|a column name|a batch id|(one of )?true(, | or )false"
    f"|a whole number( from [01] (up|to {INT32_MAX}))?|https, or empty for any host name"
)

# The parts of the pages, each from its first option on.
PARTS: Mapping[str, str] = {
    "topic": "Topic and guarantee",
    "topic.create.partitions": "Topics that do not exist",
    "includeHeaders": "Columns, headers and rates",
    "trace.header": "Tracing",
    "on.error": "Bad rows",
    "report.topic": "Reports",
    "value.format": "Formats and schemas",
    "schema.registry.url": "Schema registry",
    "bootstrap.servers": "Delivery",
    "batch.size": "Batches and memory",
    "max.block.ms": "Timeouts and retries",
    "compression.type": "Compression",
    "key.serializer": "Serializers, partitioners and interceptors",
    "metadata.max.age.ms": "Connections and metadata",
    "transactional.id": "Transactions",
    "metrics.num.samples": "Metrics",
    "security.protocol": "TLS",
    "sasl.mechanism": "SASL",
    "proxy.url": "Proxy",
}


def options_page() -> str:
    """Returns the page that lists every option by theme and links to its entry."""
    lists = (f"\n## {_title(page)}\n\n{_listed(page)}\n" for page in PAGES if page not in ("options.md", "options-other.md"))
    return HEAD + "".join(lists)


def sink_page() -> str:
    return SINK + "".join(_sink_entry(*option) for option in SINK_OPTIONS.values() if option not in SCHEMA_SINK_OPTIONS)


def schemas_page() -> str:
    own = "".join(_sink_entry(*option) for option in SCHEMA_SINK_OPTIONS)
    tls = [name for name in REGISTRY_OPTIONS if ".ssl." in name]
    links = (f"[`{name}`]({_link('options-security.md', name.removeprefix('schema.registry.'))})" for name in tls)
    others = "".join(_producer_entry(option) for name, option in REGISTRY_OPTIONS.items() if name not in tls)
    return f"{SCHEMAS}{own}{others}\n## TLS of the registry\n{REGISTRY}\n{', '.join(links)}.\n"


def producer_page() -> str:
    """Returns the page of the producer's options, without those that are the sink's as well."""
    return PRODUCER + "".join(_producer_entry(option) for name, option in OPTIONS.items() if name not in SINK_OPTIONS)


def security_page() -> str:
    return SECURITY + "".join(map(_producer_entry, SECURITY_OPTIONS.values()))


def other_page() -> str:
    return f"{OTHER}{_names_table()}{ONE}{_one_value_table()}{LIBRDKAFKA}{_librdkafka_table()}{JAVA}{_java_table()}"


PAGES: Mapping[str, Callable[[], str]] = {
    "options.md": options_page,
    "options-sink.md": sink_page,
    "options-schemas.md": schemas_page,
    "options-producer.md": producer_page,
    "options-security.md": security_page,
    "options-other.md": other_page,
}


def _title(page: str) -> str:
    title = PAGES[page]().partition("\n")[0].removeprefix("# ")
    return f"[{title}]({page})"


def _listed(page: str) -> str:
    """Returns an item for each part of a page, with links to its options."""
    parts = re.findall(r"^## (.*)$|^### (\S+)$", PAGES[page](), re.MULTILINE)
    items = (f"\n- [{part}]({_link(page, part)}): " if part else f"[`{name}`]({_link(page, name)}), " for part, name in parts)
    return re.sub(r"[,:] ?(?=\n|$)", "", "".join(items).strip())


def _link(page: str, name: str) -> str:
    return f"{page}#{anchor(name)}"


def _sink_entry(name: str, wanted: str, default: str, doc: str, differs: str) -> str:
    if doc.endswith(", for keys."):
        return _entry(name, doc)
    shown = default if not default or default.startswith("`") else f"`{default}`"
    differs = "" if "has no such option" in differs and differs.count(".") == 1 else differs
    return _entry(name, doc, _facts(takes(wanted, doc), shown and f"default: {shown}"), differs)


def _producer_entry(option: Option) -> str:
    java = "" if option.java in (option.default, ABSENT) else f" (Java: {_default(option.kind, option.java)})"
    shown = f"default: {_default(option.kind, option.default)}{java}"
    default = "" if shown.endswith(": not set") else shown
    secret = "secret" if option.kind.is_secret else ""
    absent = "not in Java" if option.java is ABSENT else ""
    differs = f"Different from Java: {option.differs}" if option.differs else ""
    return _entry(option.name, option.doc, _facts(takes(option.kind.wanted, option.doc), default, secret, absent), differs)


def _facts(*facts: str) -> str:
    text = "; ".join(filter(None, facts))
    return text[:1].upper() + text[1:]


def _entry(name: str, doc: str, *facts: str) -> str:
    """Returns an option's section. Its heading is the option's name, so that links to it never change."""
    listed = "".join(f"- {fact}\n" for fact in facts if fact)
    part = f"\n## {PARTS[name]}\n" if name in PARTS else ""
    return f"{part}\n### {name}\n\n{doc}\n" + (f"\n{listed}" if listed else "")


def takes(wanted: str, doc: str) -> str:
    """Returns what an option accepts; nothing if that is any text or number, or if the description names each value."""
    wanted = wanted.replace(f" to {INT64_MAX}", " up")
    values = wanted.removeprefix("one of ").replace("`", "").split(", ")
    is_said = all(re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", doc) for value in values)
    return "" if is_said or _ANY.fullmatch(wanted) else f"takes: {wanted}"


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
    head = ["options", "reason"]
    return f"{table(head, _by_reason(refused))}{IGNORED}{table(head, _by_reason(HARMLESS))}"


def _by_reason(reasons: Mapping[str, str]) -> Iterable[Sequence[str]]:
    """Yields a row for each reason, with all options that it holds for."""
    names: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        names.setdefault(reason, []).append(f"`{name}`")
    return ([", ".join(which), reason] for reason, which in names.items())


def _default(kind: Kind, value: object) -> str:
    if value is REQUIRED:
        return "none, required"
    return "not set" if value in (None, (), "") else f"`{kind.text(value)}`"
