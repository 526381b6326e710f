"""What a config is: its type, default and range, how text is read, and Kafka's words for text that is none (ConfigDef)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# `String.trim` of Java takes these off; Python's strip would take others as well.
_BLANK: Final = "".join(map(chr, range(33)))
_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?")
_COMMA: Final = re.compile(r"\s*,\s*")


class ConfigType(IntEnum):
    """As DescribeConfigs has them on the wire."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigError(ValueError):
    """Kafka's ConfigException: which error code it becomes is known by who asked."""


Check = Callable[[str, Any], None]
"""Given a config's name and a value of its type; raises ConfigError."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """`default` is of the type, None where there is none. `is_internal`: can be set, but is not described unless it is."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    check: Check | None = None
    is_internal: bool = False

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """Raises ConfigError in the words of `ConfigDef.parseType` and of its validators."""
        trimmed = text.strip(_BLANK)
        try:
            value = _READERS[self.type](trimmed)
        except ValueError as error:
            raise invalid(self.name, text, str(error) or f"Not a number of type {self.type.name}") from None
        if self.check is not None:
            self.check(self.name, value)
        return value

    def text(self, value: Any) -> str | None:
        """As Kafka writes a value (`ConfigDef.convertToString`)."""
        if value is None:
            return None
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return _java_double(value)
        return ",".join(value) if isinstance(value, tuple) else str(value)


def invalid(name: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {_shown(value)} for configuration {name}: {why}")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return _java_double(value) if isinstance(value, float) else str(value)


def _java_double(value: float) -> str:
    """`Double.toString`."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *others = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(others) or '0'}E{int(exponent) + len(others)}"


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _whole(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # The length first: Python refuses to read digits without end, and so does Java's range.
        if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > 20:
            raise ValueError
        value = int(text)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError
        return value

    return read


def _double(text: str) -> float:
    if text.lstrip("+-") in ("NaN", "Infinity") and len(text) - len(text.lstrip("+-")) <= 1:
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        return float.fromhex(text.rstrip("fFdD"))
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    return float(text.rstrip("fFdD"))


def _list(text: str) -> tuple[str, ...]:
    return tuple(_COMMA.split(text)) if text else ()


_READERS: Final[dict[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _whole(32),
    ConfigType.SHORT: _whole(16),
    ConfigType.LONG: _whole(64),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def at_least(low: int) -> Check:
    return between(low, None)


def between(low: int | None, high: int | None) -> Check:
    def check(name: str, value: float) -> None:
        if low is not None and value < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return check


def one_of(*words: str) -> Check:
    def check(name: str, value: str) -> None:
        if value not in words:
            raise invalid(name, value, f"String must be one of: {', '.join(words)}")

    return check


def each_of(*words: str) -> Check:
    check_one = one_of(*words)

    def check(name: str, values: Iterable[str]) -> None:
        for value in values:
            check_one(name, value)

    return check
