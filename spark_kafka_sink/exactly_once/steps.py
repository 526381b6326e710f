"""Named points between which this project's tests stop the process: where everybody else runs, a step is one look into a
dictionary."""

from __future__ import annotations

import json
import os
import socket
from typing import Literal

VARIABLE = "SPARK_KAFKA_SINK_STEPS"
"""The environment variable that holds a port of 127.0.0.1, where a test waits for steps. Never set it elsewhere."""
DEADLINE_S = 300.0
GO = "go"

Step = Literal[
    # a task
    "task.start",
    "produce.before",  # its transaction is begun, nothing is sent
    "produce.after",  # the first rows were given to the producer
    "flush.before",
    "flush.after",  # all is acked, the transaction stays open
    "message.before",  # the last thing before the commit message leaves
    # commit()
    "commit.start",
    "log.before",  # its InitProducerId on the commit log's id
    "log.after",  # the log is read
    "prepared.before",
    "prepared.after",
    "end.before",  # one EndTxn, as often as there are transactions
    "end.after",
    "complete.before",
    "complete.after",
    "sweep.before",  # the end of what nobody will commit
    "sweep.after",
    "commit.end",
]


class StepError(RuntimeError):
    """A test lets this step fail, or nobody waits for it."""


def is_watched() -> bool:
    """Whether a test waits for steps: what is done at once for many is then done one by one, so that it can be cut between."""
    return VARIABLE in os.environ


def step(name: Step, batch: int = -1) -> None:
    """Tell the test that this process has come to `name`, and wait until it may go on. batch: -1 where it is not known.

    Without the variable it does nothing. With it, nothing that comes over the socket is run: the answer is to go on, or the
    text of a StepError. Who may set an executor's environment could have it run anything without this.
    """
    port = os.environ.get(VARIABLE)
    if port is None:
        return
    answer = _ask(port, {"name": name, "batch": batch, "pid": os.getpid()})
    if answer != GO:
        raise StepError(f"{name}: {answer or 'the test that watches the steps has gone'}")


def _ask(port: str, report: dict[str, object]) -> str:
    try:
        with socket.create_connection(("127.0.0.1", int(port)), DEADLINE_S) as connection:
            connection.sendall(json.dumps(report).encode() + b"\n")
            with connection.makefile("r", encoding="utf-8") as answers:
                return answers.readline().rstrip("\n")
    except (OSError, ValueError) as error:
        raise StepError(f"{VARIABLE}={port}: no test waits for steps there; unset it") from error
