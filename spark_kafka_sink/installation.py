"""Checks what is installed: libraries and their versions, extras, and one version of this package on driver and executors.

A check runs where a library is first needed, and costs no more than the import. Its error is one line with the cause and the fix.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from zipimport import zipimporter

from spark_kafka_sink.errors import DOCS_URL, InstallationError
from spark_kafka_sink.version import __version__

PROJECT: Final = "spark-kafka-sink"

# Libraries

OLDEST: Final[Mapping[str, str]] = {"pyarrow": "19", "numpy": "2.0"}
OLDEST_PYSPARK: Final = "4.0"
RECORD_LIBRARIES: Final = ("numpy", "crc32c", "lz4.frame", "zstandard", "cramjam")
"""Modules that encoding and decoding record batches needs."""


@cache
def check_libraries(*modules: str) -> None:
    """Raises InstallationError if a core dependency is missing, broken or too old.

    Args:
        modules: the modules to check; none: all that the producer needs.
    """
    for name in modules or (*RECORD_LIBRARIES, "pyarrow"):  # pyarrow imports numpy
        library = name.partition(".")[0]
        oldest = OLDEST.get(library, "0")
        _check(name, oldest, f"pip install '{library}>={oldest}'", f"pip install --force-reinstall {library}")


@cache
def check_spark() -> None:
    """Raises InstallationError if PySpark or a core dependency is missing, broken or too old."""
    if not is_installed("pyspark"):
        raise InstallationError(not_installed("pyspark"), library="pyspark")
    upgrade = f"use a platform with Spark {OLDEST_PYSPARK} or newer, or pip install --upgrade '{PROJECT}[spark]'"
    _check("pyspark", OLDEST_PYSPARK, upgrade, f"pip install --force-reinstall '{PROJECT}[spark]'")
    check_libraries()


def _check(name: str, oldest: str, upgrade: str, repair: str) -> None:
    """Imports a module and checks its version. `upgrade` and `repair` are what to do if it is too old, or broken."""
    library = name.partition(".")[0]
    try:
        found = str(getattr(import_module(name), "__version__", ""))
    except Exception as error:  # a broken extension module raises OSError, SystemError, AttributeError, ..., too
        # An old pyarrow cannot be imported with a new numpy.
        if _is_older(_distributed_version(library), oldest):
            raise _too_old(library, _distributed_version(library), oldest, upgrade) from None
        cure = _cure_in_spark(library) or repair
        raise InstallationError(
            f"{library} cannot be imported by {sys.executable} ({_root(error)}): {cure}", library=library
        ) from None
    if _is_older(found, oldest):
        raise _too_old(library, found, oldest, upgrade)


def is_sparks_process() -> bool:
    """Returns whether Spark has started this process: its program is PySpark's daemon, which forks workers, or one of them."""
    spec: Any = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")


def _cure_in_spark(library: str) -> str | None:
    """Returns what to do about a library that a Python process of Spark's cannot import; None elsewhere."""
    if not is_sparks_process():
        return None
    spec = find_spec(library)
    loader: Any = None if spec is None else spec.loader
    if isinstance(loader, zipimporter):
        return f"--py-files cannot carry compiled packages: use --archives. See {DOCS_URL}/deploying.html"
    if spec is not None:
        return None
    page = "troubleshooting.html#modulenotfounderror-in-a-python-worker"
    return f"set PYSPARK_PYTHON to a Python that has it before Spark starts. See {DOCS_URL}/{page}"


def _distributed_version(library: str) -> str:
    """Returns the version that pip has installed, or an empty string."""
    from importlib import metadata  # 20 ms

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _too_old(library: str, found: str, oldest: str, upgrade: str) -> InstallationError:
    text = f"{library} {found} is too old, {PROJECT} requires {oldest} or newer: {upgrade}"
    return InstallationError(text, library=library, version=found)


def _root(error: BaseException) -> str:
    """Returns the first cause in one line. NumPy wraps it in a page of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])


def _is_older(version: str, than: str) -> bool:
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    """Returns the first two numbers of a version, or a tuple above all others if there are none."""
    match = re.match(r"(\d+)(?:\.(\d+))?", version)
    return (sys.maxsize,) if match is None else (int(match[1]), int(match[2] or 0))


# Extras

# By module: the distribution, and the extra of this package that installs it.
EXTRAS: Final[Mapping[str, tuple[str, str]]] = {
    "azure.identity": ("azure-identity", "azure"),
    "botocore": ("botocore", "aws"),
    "confluent_kafka": ("confluent-kafka", "verify"),
    "cryptography": ("cryptography", "tls"),
    "google.auth": ("google-auth", "gcp"),
    "google.protobuf": ("protobuf", "protobuf"),
    "grpc_tools": ("grpcio-tools", "protobuf"),
    "gssapi": ("python-gssapi", "kerberos"),
    "jsonschema": ("jsonschema", "json-schema"),
    "openlineage.client": ("openlineage-python", "openlineage"),
    "opentelemetry.metrics": ("opentelemetry-api", "opentelemetry"),
    "opentelemetry.sdk": ("opentelemetry-sdk", "opentelemetry"),
    "pandas": ("pandas", "spark"),
    "prometheus_client": ("prometheus-client", "prometheus"),
    "pyspark": ("pyspark", "spark"),
    "requests": ("requests", "gcp"),
    "tqdm": ("tqdm", "spark"),
}


def is_installed(module: str) -> bool:
    """Returns whether a module can be found. It is not imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that contains the module
        return False


def install_extra(module: str) -> str:
    """Returns the command that installs the extra with a module."""
    return f"pip install '{PROJECT}[{EXTRAS[module][1]}]'"


def not_installed(module: str) -> str:
    """Returns an error text: which distribution is not installed, and the command that installs it."""
    return f"{EXTRAS[module][0]} is not installed: {install_extra(module)}"


def check_extra(module: str, used_by: str) -> None:
    """Raises InstallationError if the module of an extra is missing.

    Args:
        module: the module to look for.
        used_by: the subject of the error's text: what needs the module.
    """
    if not is_installed(module):
        raise InstallationError(f"{used_by} needs {EXTRAS[module][0]}, and {not_installed(module)}", library=module)


# Driver and executors


def check_same_version(driver: str) -> None:
    """Raises InstallationError if the driver runs another version of this package than this process.

    Args:
        driver: the driver's version.
    """
    if driver != __version__:
        raise InstallationError(
            f"the driver has {PROJECT} {driver}, and {sys.executable} on {platform.node()} has {__version__}:"
            " install the same version on the driver and on every executor",
            driver=driver,
            executor=__version__,
        )


class SameVersion:
    """Base class of objects that the driver pickles for executors. Unpickling one by another version raises InstallationError.

    Otherwise another version would fail at the first renamed class or, worse, fill its fields with the driver's values for
    others: a dataclass with slots takes its state by position. Pickle calls `_unpickled` before it reads the state, and the
    class is looked up by its name after the check.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[[str, str, str], object], tuple[str, str, str], object]:
        made = type(self)
        state: Any = self.__getstate__()
        return _unpickled, (__version__, made.__module__, made.__qualname__), state


def _unpickled(driver: str, module: str, name: str) -> object:
    """Returns an empty instance. Pickles name this function, so its name and its parameters stay as they are."""
    check_same_version(driver)
    made: Any = getattr(import_module(module), name)
    return made.__new__(made)
