"""Faults as text, for command lines: `produce error=NOT_LEADER_OR_FOLLOWER times=3 topic=events`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.broker.faults.fault_injection import FaultInjection
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.option import nearest
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode


def _error(text: str) -> int:
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        return ErrorCode[text.upper()]
    except KeyError:
        names = [code.name for code in ErrorCode]
        raise OptionError(f"unknown error {text}{nearest(text.upper(), names)}", option="error") from None


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _times(text: str) -> int | None:
    return None if text == "all" else int(text)


_WHERE: Final[Mapping[str, Callable[[str], Any]]] = {
    "times": _times,
    "broker": int,
    "topic": str,
    "partition": int,
    "client_id": str,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `method`: of FaultInjection. `takes`: its own parameters; the first one is required."""

    method: str
    takes: Mapping[str, Callable[[str], Any]]


# Keyed by the word that names the fault.
_KINDS: Final[Mapping[str, Kind]] = {
    "error": Kind("fail", {"error": _error, "applied": _boolean, "message": str}),
    "delay": Kind("delay", {"ms": float}),
    "throttle": Kind("throttle", {"ms": float}),
    "cut-before": Kind("cut_before", {}),
    "cut-after": Kind("cut_after", {}),
    "truncate": Kind("truncate", {"keep": int}),
    "wrong-correlation-id": Kind("wrong_correlation_id", {}),
}
# Kinds that need no API.
_WHOLE: Final[Mapping[str, Kind]] = {
    "disk-full": Kind("disk_full", {"broker": int, "topic": str}),
    "hold-markers": Kind("hold_markers", {}),
    "delay-markers": Kind("delay_markers", {"ms": float}),
    "delay-verification": Kind("delay_verification", {"ms": float}),
}
EXAMPLE: Final = "produce error=NOT_LEADER_OR_FOLLOWER times=3"


def add_fault(faults: FaultInjection, text: str) -> Fault:
    """Adds the fault that a text describes.

    The text is either `API KIND [WHERE...]` or one of `disk-full`, `delay-markers ms=`, `delay-verification ms=` and
    `hold-markers`. KIND is `error=CODE`, `delay=MS`, `throttle=MS`, `cut-before`, `cut-after`, `truncate` or
    `wrong-correlation-id`. WHERE is `times=` (all: unlimited), `broker=`, `topic=`, `partition=` or `client_id=`.

    Raises:
        OptionError: the text is not a valid fault.
    """
    first, *others = text.split() or [""]
    if first.lower() in _WHOLE:
        kind = _WHOLE[first.lower()]
        return _made(faults, kind, [], _values(text, others, kind.takes))
    api = _api(first)
    if not others:
        raise OptionError(f"fault {text!r} has no kind: add one of {', '.join(_KINDS)}", option="fault")
    word, sign, value = others[0].partition("=")
    kind = _kind(word)
    pairs = [f"{next(iter(kind.takes))}={value}", *others[1:]] if sign and kind.takes else others[1:]
    return _made(faults, kind, [api], _values(text, pairs, {**kind.takes, **_WHERE}))


def _api(name: str) -> ApiKey:
    names = {_plain(key.name): key for key in ApiKey}
    if _plain(name) not in names:
        known = [key.name.lower().replace("_", "-") for key in ApiKey]
        raise OptionError(
            f"unknown API {name!r}{nearest(name.lower(), [*known, *_WHOLE])} (example: {EXAMPLE!r})", option="fault"
        )
    return names[_plain(name)]


def _plain(name: str) -> str:
    """Normalizes a name: `list-offsets`, `ListOffsets` and `LIST_OFFSETS` are the same."""
    return name.replace("-", "").replace("_", "").lower()


def _kind(word: str) -> Kind:
    if word not in _KINDS:
        raise OptionError(f"unknown fault {word!r}; it must be one of {', '.join(_KINDS)}{nearest(word, _KINDS)}", option="fault")
    return _KINDS[word]


def _values(text: str, pairs: list[str], known: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    values = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in known:
            raise OptionError(f"unknown word {pair!r} in fault {text!r}{nearest(name, known)}", option="fault")
        try:
            values[name] = known[name](value)
        except ValueError:
            raise OptionError(f"fault {text!r}: {value!r} is not a valid value", option="fault") from None
    return values


def _made(faults: FaultInjection, kind: Kind, given: list[ApiKey], values: dict[str, Any]) -> Fault:
    missing = [name for name in list(kind.takes)[:1] if name in ("error", "ms") and name not in values]
    if missing:
        raise OptionError(f"{kind.method.replace('_', '-')} needs {missing[0]}=", option="fault")
    made: Fault = getattr(faults, kind.method)(*given, **values)
    return made
