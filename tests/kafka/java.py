"""Starts Java programs out of the cached jars."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.kafka.class_archive import QUICK_START, kafka_options
from tests.kafka.versions import DEFAULT, jars_of, uses_log4j_1

LOG4J = Path(__file__).with_name("log4j2.properties")
LOG4J_1 = Path(__file__).with_name("log4j.properties")


def java() -> str:
    """The Java to run: that of JAVA_HOME, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        raise FileNotFoundError(
            f"no java in {'JAVA_HOME' if home else 'the PATH'}: a broker and Spark both need Java 17 or newer"
        )
    return found


def command(
    main_class: str, *arguments: str, options: Sequence[str] = (), version: str = DEFAULT, classes: Path | None = None
) -> list[str]:
    """The command line of `main_class` of Kafka `version`; `options` are the virtual machine's.

    classes: a folder of further ones.
    """
    log4j_1 = uses_log4j_1(version)
    logging = f"-Dlog4j.configuration={LOG4J_1.as_uri()}" if log4j_1 else f"-Dlog4j2.configurationFile={LOG4J}"
    # The archive fits this class path only.
    is_archived = classes is None and version == DEFAULT and set(QUICK_START) <= set(options)
    archived = kafka_options(java()) if is_archived else []
    path = os.pathsep.join(([] if classes is None else [str(classes)]) + [str(jars_of(version) / "*")])
    return [java(), *options, *archived, logging, "-cp", path, main_class, *arguments]


def run(
    main_class: str,
    *arguments: str,
    timeout_s: float,
    given: str = "",
    version: str = DEFAULT,
) -> str:
    """Runs a tool to its end, with `given` on its stdin, and returns what it printed; a failure is an error that holds the tail
    of it."""
    # Without a locale (CI, cron) Java prints ASCII with question marks.
    usual = ("-Xmx256m", *QUICK_START, "-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8")
    done = subprocess.run(
        command(main_class, *arguments, options=usual, version=version),
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise RuntimeError(f"{main_class} ended with exit code {done.returncode}:\n{tail}")
    return done.stdout


def start(
    main_class: str,
    *arguments: str,
    options: Sequence[str],
    output: IO[bytes],
    version: str = DEFAULT,
    classes: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program that goes on running, in a session of its own so that a Ctrl-C does not reach it."""
    return subprocess.Popen(
        command(main_class, *arguments, options=options, version=version, classes=classes),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
