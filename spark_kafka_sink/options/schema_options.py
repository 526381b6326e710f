"""Options for keys and values in the format of a schema registry: which schema, under which subject, and how it is registered.

The names are those of Confluent's serializers. The options of the registry itself are in `options/registry_options.py`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import ABSENT, BOOLEAN, FILLED, Kind, Option, integer, nearest

PARTS: Final = ("key", "value")
SCHEMA_ID: Final = "use.schema.id"
BOTH_HAVE_ONE_ID: Final = (
    f"option {SCHEMA_ID}: keys and values both have a schema; set key.{SCHEMA_ID} and value.{SCHEMA_ID}, or one of them"
)
PROTOBUF: Final = "protobuf"
_SPACES: Final = b"\t\n\v\f\r"  # no other control characters are in text, and descriptors have some
# How str() shows a dict, a list and bytes. No JSON and no .proto text begins so.
_SHOWN_DICT: Final = re.compile(r"\s*(\[\s*\{?|\{)\s*'")
_SHOWN_BYTES: Final = re.compile(r"\s*b['\"]")
_FILE_NAME: Final = re.compile(r"[^\s{}\[\]\"';=]{1,100}\.(avsc|proto|json|desc|pb)")
REGISTRY_PREFIX: Final = "schema.registry."
_LARGEST_FILE: Final = 4 * 1024 * 1024
_REGISTRY_WITHOUT_PREFIX: Final = ("basic.auth.", "bearer.auth.")
"""confluent-kafka and Java accept these options without `schema.registry.` as well."""

FORMATS: Final = ("avro", "protobuf", "json-schema")
"""The values of `key.format` and `value.format`."""
FORMAT_ALIASES: Final = {"json_schema": "json-schema", "jsonschema": "json-schema"}

STRATEGIES: Final[Mapping[str, Sequence[str]]] = {
    "topic": ("topic", "topic_subject_name_strategy", "TopicNameStrategy"),
    "record": ("record", "record_subject_name_strategy", "RecordNameStrategy"),
    "topic-record": ("topic-record", "topic_record", "topic_record_subject_name_strategy", "TopicRecordNameStrategy"),
}
JAVA_STRATEGIES: Final = ("io.confluent.kafka.serializers.subject.",)


ID_SERIALIZERS: Final[Mapping[str, Sequence[str]]] = {
    "prefix": ("prefix", "prefix_schema_id_serializer", "PrefixSchemaIdSerializer"),
    "header": ("header", "header_schema_id_serializer", "HeaderSchemaIdSerializer"),
}
JAVA_ID_SERIALIZERS: Final = "io.confluent.kafka.serializers.schema.id."
REFERENCE_STRATEGIES: Final = (
    "default",
    "reference_subject_name_strategy",
    f"{JAVA_STRATEGIES[0]}DefaultReferenceSubjectNameStrategy",
)


def _format(value: object) -> str:
    name = str(value).strip().lower()
    if (found := FORMAT_ALIASES.get(name, name)) not in FORMATS:
        raise ValueError
    return found


def _true(value: object) -> bool:
    if not BOOLEAN.read(value):
        raise ValueError
    return True


def _strategy(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    name = value.strip()
    for prefix in JAVA_STRATEGIES:
        name = name.removeprefix(prefix)
    for strategy, names in STRATEGIES.items():
        if name.lower() in {each.lower() for each in names}:
            return strategy
    raise ValueError


def _id_serializer(value: object) -> str:
    """Accepts names, and the functions of confluent-kafka."""
    name = str(getattr(value, "__name__", value)).strip().removeprefix(JAVA_ID_SERIALIZERS)
    for place, names in ID_SERIALIZERS.items():
        if name in names:
            return place
    raise ValueError


def _reference_strategy(value: object) -> str:
    if str(getattr(value, "__name__", value)).strip() not in REFERENCE_STRATEGIES:
        raise ValueError
    return REFERENCE_STRATEGIES[0]


def as_json(value: object) -> str:
    """Returns a value of an option as JSON text. References may be objects, as confluent-kafka's SchemaReference is.

    Raises OptionError for other objects, with a text that follows the option's name.
    """
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        raise OptionError(f"the {type(value).__name__} cannot be written as JSON: {error}") from None


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    found = {name: getattr(value, name) for name in _REFERENCE_FIELDS if hasattr(value, name)}
    if len(found) < len(_REFERENCE_FIELDS):
        raise TypeError(f"it contains an object of type {type(value).__name__}")
    return found


def _references(value: object) -> tuple[tuple[str, str, int], ...]:
    """Accepts JSON text, or the same as a list of dicts or of objects."""
    try:
        read = json.loads(value if isinstance(value, str) else as_json(value))
        found = tuple((one["name"], one["subject"], one["version"]) for one in read)
    except (TypeError, KeyError, AttributeError, OptionError):
        raise ValueError from None
    for name, subject, version in found:
        if not (isinstance(name, str) and isinstance(subject, str) and name and subject):
            raise ValueError
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError
    if len({name for name, *_ in found}) < len(found):
        raise ValueError
    return found


def _properties(value: object) -> tuple[tuple[str, str], ...]:
    """Accepts a JSON object as text, or a dict."""
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except RecursionError:
        raise ValueError from None
    if not isinstance(read, Mapping) or not read:
        raise ValueError
    if not all(isinstance(name, str) and isinstance(one, str) for name, one in read.items()):
        raise ValueError
    return tuple(read.items())


def _schema_text(value: object) -> str:
    """Accepts text. JSON may also be a mapping or a list, and Protobuf's descriptors bytes."""
    if isinstance(value, Mapping | list):
        return as_json(value)
    if isinstance(value, bytes) and value:
        return b64encode(value).decode()
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    if _SHOWN_DICT.match(value):
        text = "the text shows a Python dict, as Spark's option() writes it; give the schema as JSON text: json.dumps(schema)"
        raise OptionError(text)
    if _SHOWN_BYTES.match(value):
        raise OptionError(
            "the text shows Python bytes, as Spark's option() writes them; give them in base64: base64.b64encode(schema).decode()"
        )
    return value


FORMAT: Final = Option("format", Kind(f"one of {', '.join(FORMATS)}", _format), None, ABSENT, "The format of keys or values.")
_SCHEMA: Final = Kind("the text of a schema", _schema_text)
_REFERENCE_FIELDS: Final = ("name", "subject", "version")
_REFERENCES: Final = Kind('a JSON list such as `[{"name": "shop.Item", "subject": "item-value", "version": 1}]`', _references)
_PROPERTIES: Final = Kind('a JSON object of texts, such as `{"stage": "live"}`', _properties)
_STRATEGY: Final = Kind("one of topic, record, topic-record", _strategy)

# By name without `key.` and `value.`. Confluent's clients have the same defaults.
SCHEMA_OPTIONS: Final[Mapping[str, Option]] = {
    option.name: option
    for option in (
        Option(
            "schema",
            _SCHEMA,
            None,
            ABSENT,
            "The schema, as text. By default it is derived from the columns. `publish`, `foreach_batch` and `Producer` also"
            " accept a dict; in `option()`, give `json.dumps(schema)`.",
        ),
        Option(
            "schema.file",
            FILLED,
            None,
            ABSENT,
            "File with the schema's text. The driver reads it once per batch or stream, and a producer once.",
        ),
        Option(
            "schema.name",
            FILLED,
            None,
            ABSENT,
            "Name of the derived record, with a namespace if it has dots. It defaults to the topic's name, with `_key` or"
            " `_value`, in which `_` replaces what Avro does not allow.",
        ),
        Option(
            "schema.references",
            _REFERENCES,
            None,
            ABSENT,
            "Schemas of the registry that the given schema uses. A name is Avro's full name of a type, Protobuf's path of an"
            " import, or the URI of a `$ref`. Python functions also accept a list of dicts.",
        ),
        Option(
            "schema.message",
            FILLED,
            None,
            ABSENT,
            "Full name of the Protobuf message to write, such as `shop.Order`. It defaults to the first message of the schema.",
        ),
        Option(
            "reference.subject.name.strategy",
            Kind("default", _reference_strategy),
            "default",
            "default",
            "How the subjects of the files are named that a Protobuf schema imports: only the default, their path, is supported.",
        ),
        Option(
            "subject.name.strategy",
            _STRATEGY,
            "topic",
            "topic",
            "How the subject is named. `topic`: the topic's name with `-key` or `-value`. `record`: the record's full name."
            " `topic-record`: both, with `-` between them. Confluent's names for them are accepted, too.",
        ),
        Option(
            "auto.register.schemas",
            BOOLEAN,
            True,
            True,
            "Whether a schema that the registry does not have is registered. If not, it raises an error."
            " It defaults to false with `use.latest.version`, `use.latest.with.metadata` and `use.schema.id`.",
        ),
        Option(
            "use.latest.version",
            BOOLEAN,
            False,
            False,
            "Whether to write with the latest version of the subject's schema. It is asked for once per application or producer.",
        ),
        Option(
            "use.latest.with.metadata",
            _PROPERTIES,
            None,
            None,
            "Write with the latest version of the subject's schema whose metadata has these properties.",
        ),
        Option(
            "schema.id.serializer",
            Kind("one of prefix, header", _id_serializer),
            "prefix",
            "prefix",
            "Where the schema's id is. `prefix`: in 5 bytes before the data. `header`: in the header `__key_schema_id` or"
            " `__value_schema_id`, which needs a registry with guids, such as Confluent Platform 8. Confluent's names for them"
            " are accepted, too.",
        ),
        Option("use.schema.id", integer(0), None, None, "Write with the schema that has this id in the registry."),
        Option(
            "normalize.schemas",
            BOOLEAN,
            False,
            False,
            "Whether the registry normalizes the schema before it compares it with those that it has.",
        ),
        Option(
            "skip.known.types",
            Kind("true, because registries know the files of google.protobuf", _true),
            True,
            True,
            "Confluent's option for Protobuf: files that each registry knows are not registered. Only true is supported.",
        ),
    )
}
OF_ONE_PART: Final = ("schema", "schema.file", "schema.name", "schema.message", "schema.references")
"""Options that exist only with `key.` or `value.` before them. The others apply to both without it."""

_ALWAYS_COMPARED: Final = "columns are always compared with the schema; remove the option"
NOT_SUPPORTED: Final[Mapping[str, str]] = {
    "subject.name.strategy.type": "use subject.name.strategy",
    "subject.name.strategy.conf": "use subject.name.strategy",
    "validation.rules": "rules are not supported",
    "latest.compatibility.strict": _ALWAYS_COMPARED,
    "id.compatibility.strict": _ALWAYS_COMPARED,
    "validate": _ALWAYS_COMPARED,
    "json.fail.invalid.schema": _ALWAYS_COMPARED,
    "json.fail.unknown.properties": "additionalProperties of the schema decides whether others are allowed; remove the option",
    "json.write.dates.iso8601": "dates are always written as in ISO 8601; remove the option",
    "json.schema.spec.version": "derived schemas are of draft 7; set value.schema for another one",
    "json.oneof.for.nullables": "fields that may be null are not required in derived schemas; set value.schema for another one",
    "json.default.property.inclusion": "fields that are null are always left out; remove the option",
    "json.indent.output": "JSON is written without spaces; remove the option",
    "use.deprecated.format": "the current format of Protobuf is always written; remove the option",
}
"""Options of Confluent's serializers that do not exist here, with the reason or what to use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConfig:
    """How the schema of keys, or of values, is found.

    Attributes:
        format: name of the format, such as avro.
        part: key or value.
        text: the given schema; None: it is derived from the columns or is the registry's.
        file: name of a file with the schema that `loaded` reads; None: there is none.
        name: full name of a derived record; None: from the topic.
        strategy: topic, record or topic-record.
        auto_register: whether a missing schema is registered.
        use_latest: whether the subject's latest schema is used.
        schema_id: id of the schema to use.
        metadata: properties that the subject's latest schema must have; None: any.
        references: name, subject and version of each schema that the given one uses.
        id_in: where the id is: prefix or header.
        normalize: whether the registry normalizes.
        message: name of the Protobuf message to write; None: the first of the schema.
    """

    format: str
    part: str
    text: str | None = None
    file: str | None = None
    name: str | None = None
    strategy: str = "topic"
    auto_register: bool = True
    use_latest: bool = False
    schema_id: int | None = None
    metadata: tuple[tuple[str, str], ...] | None = None
    references: tuple[tuple[str, str, int], ...] = ()
    id_in: str = "prefix"
    normalize: bool = False
    message: str | None = None

    def loaded(self) -> SchemaConfig:
        """Returns the settings with the text of the file. Raises OptionError if it cannot be read."""
        if self.file is None:
            return self
        text = _file_text(f"{self.part}.schema.file", self.file, may_be_binary=self.format == PROTOBUF)
        return replace(self, text=text, file=None)

    @property
    def is_registrys(self) -> bool:
        """Whether the schema is one that the registry has."""
        return self.use_latest or self.schema_id is not None or self.metadata is not None


def is_registry_option(name: str) -> bool:
    """Returns whether `registry_config` reads an option, or raises an error for it that names what to use."""
    return name.startswith((REGISTRY_PREFIX, *_REGISTRY_WITHOUT_PREFIX))


def is_schema_option(name: str) -> bool:
    """Returns whether an option belongs to schemas or their registry, supported or not."""
    bare = _without_part(name)
    is_option = bare in SCHEMA_OPTIONS and (bare != name or bare not in OF_ONE_PART)
    return is_option or is_registry_option(name) or bare in NOT_SUPPORTED


def is_format_option(name: str) -> bool:
    """Returns whether an option is `key.format` or `value.format`, which only the sink has."""
    return name in {f"{part}.format" for part in PARTS}


def schema_option_names() -> list[str]:
    """Returns all names of supported options, for suggestions."""
    names = [name for name in SCHEMA_OPTIONS if name not in OF_ONE_PART]
    return [*names, *(f"{part}.{name}" for part in PARTS for name in SCHEMA_OPTIONS), *(f"{part}.format" for part in PARTS)]


def schema_config(part: str, options: Mapping[str, object], kind: object = "avro", *, reads_file: bool = True) -> SchemaConfig:
    """Returns the settings of one part.

    Args:
        part: key or value.
        options: values by name, with `key.` or `value.` or without; others are ignored.
        kind: the value of the option `key.format` or `value.format`.
        reads_file: whether to read the schema's file now, or leave it to `loaded`.

    Raises:
        OptionError: a value is not valid, an option is not supported, or options contradict each other.
    """
    refuse_unsupported(options)
    given: dict[str, tuple[str, Any]] = {}
    for name, option in SCHEMA_OPTIONS.items():
        for written in (f"{part}.{name}", name):
            if written in options and options[written] is not None:
                given[name] = written, _parsed(option, written, options[written])
                break
    values = {name: value for name, (_, value) in given.items()}
    _check_together(values, {name: written for name, (written, _) in given.items()})
    is_registrys = bool(values.get("use.latest.version") or values.get("use.latest.with.metadata")) or SCHEMA_ID in values
    config = SchemaConfig(
        format=_parsed(FORMAT, f"{part}.format", kind),
        part=part,
        text=values.get("schema"),
        file=values.get("schema.file"),
        name=values.get("schema.name"),
        strategy=values.get("subject.name.strategy", "topic"),
        auto_register=values.get("auto.register.schemas", not is_registrys),
        use_latest=values.get("use.latest.version", False),
        schema_id=values.get(SCHEMA_ID),
        metadata=values.get("use.latest.with.metadata"),
        references=values.get("schema.references", ()),
        id_in=values.get("schema.id.serializer", "prefix"),
        normalize=values.get("normalize.schemas", False),
        message=values.get("schema.message"),
    )
    if config.text is not None and _FILE_NAME.fullmatch(config.text):
        written = given["schema"][0]
        raise OptionError(
            f"option {written}: {config.text!r} is the name of a file, not a schema; set {part}.schema.file", option=written
        )
    if config.message is not None and config.format != PROTOBUF:
        written = given["schema.message"][0]
        raise OptionError(f"option {written}: only the format protobuf has messages; this is {config.format}", option=written)
    return config.loaded() if reads_file else config


def refuse_unsupported(names: Iterable[str]) -> None:
    """Raises OptionError for an option that Confluent's serializers have and this package does not."""
    for name in names:
        reason = NOT_SUPPORTED.get(_without_part(name))
        if reason is not None:
            raise OptionError(f"option {name}: {reason}", option=name)


def refuse_unknown(name: str, known: Iterable[str]) -> NoReturn:
    """Raises OptionError with the nearest of the known names."""
    raise OptionError(f"unknown option {name}{nearest(name, known)}", option=name)


def _without_part(name: str) -> str:
    part, dot, rest = name.partition(".")
    return rest if dot and part in PARTS else name


def _parsed(option: Option, name: str, value: object) -> Any:
    try:
        return option.kind.read(value)
    except ValueError:
        shown = "the value" if len(repr(value)) > 100 else repr(value)
        raise OptionError(f"option {name}: {shown} is not {option.kind.wanted}", option=name) from None
    except OptionError as error:
        raise OptionError(f"option {name}: {error.message}", option=name) from None


# Pairs of options that each say where the schema comes from.
_ALTERNATIVES: Final = (SCHEMA_ID, "use.latest.version", "use.latest.with.metadata", "schema", "schema.file")


def _check_together(values: Mapping[str, Any], written: Mapping[str, str]) -> None:
    """Raises OptionError if options say more than once where the schema comes from."""
    chosen = [name for name in _ALTERNATIVES if values.get(name) not in (None, False)]
    if len(chosen) > 1:
        first, second = (written[name] for name in chosen[:2])
        raise OptionError(f"option {first}: cannot be combined with {second}; remove one of them", option=first)
    if chosen and chosen[0].startswith("use.") and values.get("auto.register.schemas"):
        raise OptionError(
            f"option {written['auto.register.schemas']}: cannot be true with {written[chosen[0]]}",
            option=written["auto.register.schemas"],
        )
    if "schema.references" in values and not (chosen and chosen[0].startswith("schema")):
        option = written["schema.references"]
        text = f"option {option}: has no effect without a given schema; set {option.removesuffix('.references')}, or remove it"
        raise OptionError(text, option=option)
    # The subject of a registered schema may be named after its record.
    is_latest = values.get("use.latest.version") or values.get("use.latest.with.metadata")
    needs_name = is_latest and values.get("subject.name.strategy", "topic") != "topic"
    if chosen and "schema.name" in values and not needs_name:
        raise OptionError(
            f"option {written['schema.name']}: names a derived record and cannot be combined with {written[chosen[0]]}",
            option=written["schema.name"],
        )


def _file_text(option: str, name: str, *, may_be_binary: bool) -> str:
    """Returns the text of a schema in a file. Descriptors of Protobuf become base64."""
    path = Path(name)
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
        is_binary = may_be_binary and any(byte < 0x20 and byte not in _SPACES for byte in data)
        text = b64encode(data).decode() if is_binary else data.decode()
    except OSError as error:
        raise OptionError(f"option {option}: file {name} cannot be read: {error.strerror}", option=option) from None
    except UnicodeDecodeError:
        raise OptionError(f"option {option}: file {name} is not valid UTF-8", option=option) from None
    if len(data) > _LARGEST_FILE:
        raise OptionError(f"option {option}: file {name} is larger than {_LARGEST_FILE:,} bytes", option=option)
    if not text.strip():
        raise OptionError(f"option {option}: file {name} is empty", option=option)
    return text
