"""Named points at which this project's tests stop, fail or kill the process. Outside tests a point costs one dictionary lookup.

A failpoint only reports and waits: the code behaves the same whether a test watches or not.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Final, Literal

VARIABLE: Final = "SPARK_KAFKA_SINK_FAILPOINTS"
"""The environment variable with the port on 127.0.0.1 where a test listens. Set it only in tests."""
DEADLINE_S: Final = 300.0
GO: Final = "go"

Failpoint = Literal[
    # a task
    "task.start",
    "produce.before",  # its transaction is begun, nothing is sent
    "produce.after",  # the first rows were given to the producer
    "flush.before",
    "flush.after",  # all is acked, the transaction stays open
    "message.before",  # the last step before the commit message is returned
    # commit()
    "commit.start",
    "log.before",  # its InitProducerId on the commit log's id
    "log.after",  # the log is read
    "prepared.before",
    "prepared.after",
    # Reached once for each EndTxn, or more often if it is retried. They are pipelined: at end.before all earlier ones on the same
    # connection are in flight, at end.after some of the others.
    "end.before",  # an EndTxn is about to be sent
    "end.after",  # an answer has come
    "complete.before",
    "complete.after",
    "sweep.before",  # before aborting abandoned transactions
    "sweep.after",
    "commit.end",
]


class FailpointError(RuntimeError):
    """A test made this point fail, or no test listens on the port."""


def reach(name: Failpoint, batch: int = -1) -> None:
    """Tells the test that this process has reached `name`, and waits until it may continue.

    Does nothing without the environment variable. Nothing received over the socket is executed: the answer is either to continue
    or the text of a FailpointError. Anyone who can set an executor's environment can already run arbitrary code.

    Args:
        name: The point.
        batch: The batch number; -1 if unknown.
    """
    port = os.environ.get(VARIABLE)
    if port is None:
        return
    answer = _ask(port, {"name": name, "batch": batch, "pid": os.getpid()})
    if answer != GO:
        raise FailpointError(f"{name}: {answer or 'the test that watches the failpoints has gone'}")


def _ask(port: str, report: dict[str, object]) -> str:
    try:
        with socket.create_connection(("127.0.0.1", int(port)), DEADLINE_S) as connection:
            connection.sendall(json.dumps(report).encode() + b"\n")
            with connection.makefile("r", encoding="utf-8") as answers:
                return answers.readline().rstrip("\n")
    except (OSError, ValueError) as error:
        raise FailpointError(f"{VARIABLE}={port}: no test listens there; unset it") from error
