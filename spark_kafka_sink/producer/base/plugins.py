"""Loads classes that users name in options: serializers, partitioners and interceptors."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from spark_kafka_sink.errors import OptionError


def plugin(value: object, option: str) -> Any:
    """Returns the object for an option's value: the object itself, or an instance of a class or of `package.module.Class`.

    Classes are called without arguments. Raises OptionError if the class does not exist or cannot be instantiated.
    """
    if isinstance(value, str):
        value = _class_named(value, option)
    if not isinstance(value, type):
        return value
    try:
        return value()
    except Exception as error:
        text = f"option {option}: {full_name(value)}() failed: {type(error).__name__}: {error}"
        raise OptionError(text, option=option) from error


def configured(plugin: object, option: str, configure: Callable[..., object], *settings: object) -> None:
    """Calls the plugin's `configure`. Raises OptionError if that fails."""
    try:
        configure(*settings)
    except Exception as error:
        text = f"option {option}: {full_name(type(plugin))}.configure failed: {type(error).__name__}: {error}"
        raise OptionError(text, option=option) from error


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _class_named(name: str, option: str) -> type:
    module_name, _, class_name = name.rpartition(".")
    if not module_name:
        raise OptionError(
            f"option {option}: {name!r} is neither a known name nor a dotted name: write package.module.Class", option=option
        )
    try:
        found = getattr(import_module(module_name), class_name)
    except ModuleNotFoundError as error:
        text = f"option {option}: {name}: no module named {error.name!r}; it must be installed where the producer runs"
        raise OptionError(text, option=option) from error
    except AttributeError as error:
        raise OptionError(f"option {option}: module {module_name} has no class {class_name}", option=option) from error
    except Exception as error:
        text = f"option {option}: module {module_name} cannot be imported: {type(error).__name__}: {error}"
        raise OptionError(text, option=option) from error
    if not isinstance(found, type):
        raise OptionError(f"option {option}: {name} is {type(found).__name__}, not a class", option=option)
    return found
