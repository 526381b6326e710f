"""Secret option values (`Secret`), and references to values stored elsewhere, such as `${env:NAME}`.

References have Kafka's syntax (`ConfigTransformer`). They are resolved on use, in the process that uses them, and never cached,
so a rotated file takes effect at the next use.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.properties import parse_properties

Value = TypeVar("Value")

HIDDEN: Final = "[hidden]"
"""Java's Password.HIDDEN."""

# Kafka's ConfigTransformer.DEFAULT_PATTERN: ${provider:[path:]key}.
_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

_LARGEST: Final = 1024 * 1024  # maximum bytes of a referenced file, so that a device or a log cannot exhaust the memory


@dataclass(frozen=True, slots=True)
class Provider:
    """A configuration provider: the meaning of a name in `${name:...}`.

    Attributes:
        kind: env, file or directory.
        allowlist: pattern that the names of environment variables must match in full.
        allowed_paths: readable folders and files; None for any.
    """

    kind: str
    allowlist: str = ".*"
    allowed_paths: tuple[str, ...] | None = None


Providers = tuple[tuple[str, Provider], ...]

# Kafka has no providers until config.providers names them.
DEFAULT_PROVIDERS: Final[Providers] = tuple((kind, Provider(kind)) for kind in ("env", "file", "directory"))

CONFIG_PROVIDERS: Final = "config.providers"
PROVIDER_CLASSES: Final = {
    "EnvVarConfigProvider": ("env", "allowlist.pattern"),
    "FileConfigProvider": ("file", "allowed.paths"),
    "DirectoryConfigProvider": ("directory", "allowed.paths"),
}
_KINDS: Final = dict(PROVIDER_CLASSES.values())


class Secret:
    """A secret option value: `str` and `repr` hide it. It compares and hashes by its text, and pickles with its text.

    The text may have references such as `${env:NAME}`, which `reveal` resolves in the calling process. `providers` resolve them;
    with None the text has no references.
    """

    __slots__ = ("_providers", "_text")

    def __init__(self, text: str, providers: Providers | None = DEFAULT_PROVIDERS) -> None:
        self._text = text
        self._providers = providers

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (other._text, other._providers) == (self._text, self._providers)

    def __hash__(self) -> int:
        return hash(self._text)

    def reveal(self) -> str:
        """Returns the text with its references resolved. Raises OptionError if a reference cannot be resolved."""
        return self._text if self._providers is None else resolve(self._text, self._providers)

    def unresolved(self) -> str:
        """Returns the text as given, with references unresolved."""
        return self._text

    def with_text(self, text: str) -> Secret:
        """Returns a secret with another text and the same providers."""
        return Secret(text, self._providers)


class HiddenValues(dict[str, Value]):
    """A dictionary whose repr shows only the keys."""

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"

    __str__ = __repr__


class TextWithReferences(str):
    """Text whose references are resolved by custom providers. `resolve` recognizes it."""

    providers: Providers

    def __new__(cls, text: str, providers: Providers) -> TextWithReferences:
        made = super().__new__(cls, text)
        made.providers = providers
        return made

    def __reduce__(self) -> tuple[type[TextWithReferences], tuple[str, Providers]]:
        return TextWithReferences, (str(self), self.providers)


def has_references(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def is_reference(text: str) -> bool:
    """Returns whether the text is exactly one reference."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def resolve(text: str, providers: Providers | None = None) -> str:
    """Returns `text` with its references resolved in this process. Resolved values are not searched for more references.

    Raises OptionError if a reference cannot be resolved. Kafka keeps such a reference as it is and uses it as the password.
    """
    if "${" not in text:
        return str(text)
    known = dict(getattr(text, "providers", DEFAULT_PROVIDERS) if providers is None else providers)
    return _REFERENCE.sub(lambda match: _resolved(match, known), text)


def _resolved(match: re.Match[str], known: Mapping[str, Provider]) -> str:
    provider = known.get(match[1])
    if provider is None:
        # The error does not quote the text, which may be part of a password.
        raise OptionError(
            f"it contains a reference ${{provider:...}} to an unknown provider; must be one of "
            f"{', '.join(known) or 'none'}. If the value contains this text literally, store it elsewhere and reference "
            "it"
        )
    read = {"env": _variable, "file": _property, "directory": _content}[provider.kind]
    try:
        return read(provider, match[2] or "", match[3])
    except OptionError as error:
        raise OptionError(f"{match[0]}: {error.message}", reference=match[0]) from None


def _variable(provider: Provider, path: str, name: str) -> str:
    if path:
        raise OptionError("environment variables have no path: write ${env:NAME}")
    if not re.fullmatch(provider.allowlist, name):
        raise OptionError(f"{name} does not match allowlist.pattern")
    value = os.environ.get(name)
    if value is None:
        raise OptionError(f"environment variable {name} is not set in {_this_process()}")
    return value


def _property(provider: Provider, path: str, name: str) -> str:
    if not path:
        raise OptionError("the path is missing: write ${file:/path:name}")
    try:
        values = parse_properties(_text_of(_allowed(provider, path)))
    except ValueError as error:
        raise OptionError(f"{path} is not a valid properties file: {error}") from None
    if name not in values:
        raise OptionError(f"{path} has no entry {name}, as seen by {_this_process()}")
    return values[name]


def _content(provider: Provider, path: str, name: str) -> str:
    if not path:
        raise OptionError("the directory is missing: write ${directory:/path:file}")
    if not name or name in (".", "..") or "/" in name or os.sep in name:
        raise OptionError("the part after the last colon must be the name of a file in that directory")
    # Editors and echo append a line end, which is not part of the password. Kafka would keep it.
    text = _text_of(_allowed(provider, path) / name)
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _allowed(provider: Provider, path: str) -> Path:
    """Returns the normalized path if it is allowed (Kafka's AllowedPaths). Raises an error otherwise."""
    if provider.allowed_paths is None:
        return Path(path)
    normal = Path(os.path.normpath(path))
    if not any(normal.is_relative_to(allowed) for allowed in provider.allowed_paths):
        raise OptionError("the path is not in allowed.paths")
    return normal


def _text_of(path: Path) -> str:
    try:
        if not path.is_file():
            raise OptionError(f"{path} is not a file that {_this_process()} can read")
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise OptionError(f"{path} cannot be read by {_this_process()}: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise OptionError(f"{path} is larger than {_LARGEST:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise OptionError(f"{path} is not valid UTF-8") from None


def _this_process() -> str:
    """Returns a description of this process for error messages: a reference may resolve in the driver but not on an executor."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    is_worker = spec is not None and str(spec.name).startswith("pyspark.")
    what = "the Python worker started by Spark" if is_worker else "this process"
    return f"{what} (pid {os.getpid()} on {socket.gethostname()})"


# config.providers


def is_provider_option(name: str) -> bool:
    return name == CONFIG_PROVIDERS or (name.startswith(f"{CONFIG_PROVIDERS}.") and name != "config.providers.automatic")


def providers_of(settings: Mapping[str, object]) -> Providers:
    """Returns the providers set by Kafka's options `config.providers`, `config.providers.NAME.class` and `.param.*`.

    Raises OptionError for a class other than Kafka's three, or an unknown parameter.
    """
    # Spark lowercases option names, but not the provider names in the values.
    given = {name.lower(): str(value).strip() for name, value in settings.items() if is_provider_option(name)}
    if not given:
        return DEFAULT_PROVIDERS
    names = [name.strip() for name in given.pop(CONFIG_PROVIDERS, "").split(",") if name.strip()]
    if not names:
        raise OptionError(f"option {CONFIG_PROVIDERS}: must be a comma-separated list of provider names", option=CONFIG_PROVIDERS)
    found = tuple((name, _provider(name, given)) for name in names)
    if given:
        left = next(iter(given))
        raise OptionError(
            f"option {left}: {CONFIG_PROVIDERS} does not list this provider, or the provider has no such parameter", option=left
        )
    return found


def _provider(name: str, given: dict[str, str]) -> Provider:
    """Removes the options of one provider from `given` and returns the provider."""
    prefix = f"{CONFIG_PROVIDERS}.{name.lower()}"
    option = f"{prefix}.class"
    kind, _ = PROVIDER_CLASSES.get(given.pop(option, name).rpartition(".")[2], (name if name in _KINDS else None, ""))
    if kind is None:
        known = ", ".join(f"org.apache.kafka.common.config.provider.{each}" for each in PROVIDER_CLASSES)
        raise OptionError(f"option {option}: must be one of {known}; other Java classes are not supported", option=option)
    option = f"{prefix}.param.{_KINDS[kind]}"
    parameter = given.pop(option, None)
    if not parameter:
        return Provider(kind)
    if kind == "env":
        try:
            re.compile(parameter)
        except re.error as error:
            raise OptionError(f"option {option}: not a valid regular expression: {error}", option=option) from None
        return Provider(kind, allowlist=parameter)
    paths = tuple(os.path.normpath(each) for each in parameter.split(","))
    if not all(os.path.isabs(path) for path in paths):
        raise OptionError(f"option {option}: must be a comma-separated list of absolute paths", option=option)
    return Provider(kind, allowed_paths=paths)
