"""The options of the stable interface as lines of text: names, values and defaults, and what plug-ins are called with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import griffe

from docs.public_names import SECTIONS, docstring, exported, package
from spark_kafka_sink.options.guarantee_options import GUARANTEE, Guarantee
from spark_kafka_sink.options.option import REQUIRED, Option
from spark_kafka_sink.options.producer_options import OPTIONS
from spark_kafka_sink.options.registry_options import PREFIX, REGISTRY_OPTIONS
from spark_kafka_sink.options.schema_options import (
    FORMAT_ALIASES,
    FORMATS,
    ID_SERIALIZERS,
    JAVA_ID_SERIALIZERS,
    JAVA_STRATEGIES,
    REFERENCE_STRATEGIES,
    STRATEGIES,
    is_format_option,
    is_registry_option,
    schema_option_names,
)
from spark_kafka_sink.options.secret import CONFIG_PROVIDERS, DEFAULT_PROVIDERS, PROVIDER_CLASSES
from spark_kafka_sink.options.security_config import ALIASES, CLIENT_HANDLERS, LOGIN_HANDLERS, ONE_VALUE, SECURITY_OPTIONS
from spark_kafka_sink.options.sink_options import KAFKA_PREFIX, SET_BY_THE_SINK, SINK_OPTIONS, sink_options
from spark_kafka_sink.producer.partitioners.partitioner_table import NAMES, SYNONYMS
from spark_kafka_sink.producer.serializers import serializer_table as serializers
from spark_kafka_sink.security.sasl.token_sources import CLOUDS, PROVIDER, RESULT

KAFKA: Mapping[str, Option] = {**OPTIONS, **SECURITY_OPTIONS}
SHORT = {short: name for name in REGISTRY_OPTIONS if is_registry_option(short := name.removeprefix(PREFIX))}
"""Names of options of the registry without its prefix."""

# By option: the names that it takes besides those that its own text lists, and for a synonym what it means.
VALUES: Mapping[str, Iterable[str] | Mapping[str, str]] = {
    "key.serializer, value.serializer": (
        *serializers.SHORT_NAMES,
        *serializers.FORMATS,
        *serializers.JAVA_NAMES,
        *(f"{serializers.CONFLUENT_PACKAGE}{java}" for java, _ in serializers.FORMATS.values()),
    ),
    "default.list.key.serde.inner, default.list.value.serde.inner, also": serializers.JAVA_SERDES.keys(),
    "partitioner.class": {name: SYNONYMS.get(name, name) for name in NAMES},
    "key.format, value.format": {**dict.fromkeys(FORMATS, ""), **FORMAT_ALIASES},
    "subject.name.strategy": {name: meant for meant, names in STRATEGIES.items() for name in names},
    "subject.name.strategy, before Java's names": JAVA_STRATEGIES,
    "schema.id.serializer": {name: meant for meant, names in ID_SERIALIZERS.items() for name in names},
    "schema.id.serializer, before Java's names": (JAVA_ID_SERIALIZERS,),
    "reference.subject.name.strategy": REFERENCE_STRATEGIES,
    PROVIDER: CLOUDS.keys(),
    "sasl.client.callback.handler.class, in any package": CLIENT_HANDLERS,
    "sasl.login.callback.handler.class, in any package": {name: source or "" for name, source in LOGIN_HANDLERS.items()},
    f"{CONFIG_PROVIDERS}, if it is not set": dict(DEFAULT_PROVIDERS).keys(),
    f"{CONFIG_PROVIDERS}.NAME.class, in any package": {name: kind for name, (kind, _) in PROVIDER_CLASSES.items()},
    f"{CONFIG_PROVIDERS}.NAME.param": sorted({parameter for _, parameter in PROVIDER_CLASSES.values()}),
}

# Types of functions that a program gives. A row is a name in the interface, and where the type is.
FUNCTIONS: Mapping[str, str] = {
    "key.serializer, value.serializer": "producer.serializers.serializer_table.Function",
    "on_completion": "producer.base.producer_record.OnCompletion",
    "on_bad_rows": "producer.base.bad_rows.OnBadRows",
    "row_numbers": "producer.base.bad_rows.RowNumbers",
    "add_batch_listener": "spark.driver.event_queue.BatchListener",
}


def option_lines() -> Iterator[str]:
    """Yields a line for each option, value and plug-in point."""
    for option in SINK_OPTIONS.values():
        yield f"option {option.name}: {option.takes}; {_words(option.default.strip('`'))}"
    yield from (f"option {name}: {_facts(each, each.default)}" for name, each in REGISTRY_OPTIONS.items())
    yield from (f"option {name}: as {meant}" for name, meant in SHORT.items())
    yield from (f"option {name}: as {name.partition('.')[2]}" for name in schema_option_names() if name not in SINK_OPTIONS)
    yield from _of_kafka()
    for option_name, values in VALUES.items():
        for value in values:
            meant = values.get(value, "") if isinstance(values, Mapping) else ""
            yield f"value of {option_name}: {value}{f', as {meant}' if meant not in ('', value) else ''}"
    yield from _plug_ins()


def _of_kafka() -> Iterator[str]:
    """Yields the producer's options: those of `Producer`, and of the sink with the defaults that its guarantees give them."""
    given = {f"{KAFKA_PREFIX}bootstrap.servers": "localhost:9092"}
    by_guarantee = {each: sink_options({**given, GUARANTEE: each}).producer.settings() for each in Guarantee}
    usual = by_guarantee.pop(Guarantee.AT_LEAST_ONCE)
    for name, option in KAFKA.items():
        yield f"producer option {name}: {_facts(option, option.default)}"
        if name in SET_BY_THE_SINK:
            continue
        yield f"option {KAFKA_PREFIX}{name}: {_facts(option, usual[name])}"
        for guarantee, settings in by_guarantee.items():
            if settings[name] != usual[name]:
                yield f"option {KAFKA_PREFIX}{name}, {guarantee}: {_words(option.kind.text(settings[name]))}"
    for name in (*schema_option_names(), *REGISTRY_OPTIONS, *SHORT):
        if not is_format_option(name):
            yield f"producer option {name}: as option {name}"
    for prefix, what in (("", "producer option"), (KAFKA_PREFIX, "option")):
        yield from (f"{what} {prefix}{name}: as {prefix}{meant}" for name, meant in ALIASES.items())
        yield from (f"{what} {prefix}{name}: {' or '.join(one.accepted)}" for name, one in ONE_VALUE.items())


def _facts(option: Option, default: object) -> str:
    if option.default is REQUIRED:
        return f"{option.kind.wanted}; required"
    return f"{option.kind.wanted}; {_words('' if default is None else option.kind.text(default))}"


def _words(default: str) -> str:
    return f"default {default}" if default else "no default"


def _plug_ins() -> Iterator[str]:
    for name, path in FUNCTIONS.items():
        alias = package()[path]
        assert isinstance(alias, griffe.Attribute)
        yield f"function of {name}: {alias.value}"
    yield f"function of {PROVIDER}: it gets a host and returns {RESULT}"
    for page in SECTIONS.values():
        for name in page:
            for method in re.findall(r"^- (\w+\(.*?\)):", docstring(exported(name)), re.MULTILINE):
                yield f"optional method {name}.{method}"
