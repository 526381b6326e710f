"""Named points at which this project's tests stop, fail or kill the process. Elsewhere a point costs one look into a dictionary.

A failpoint only reports and waits: what is done is the same whether a test watches or not.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Final, Literal

VARIABLE: Final = "SPARK_KAFKA_SINK_FAILPOINTS"
"""The environment variable with the port of 127.0.0.1 on which a test listens. Never set it elsewhere."""
DEADLINE_S: Final = 300.0
GO: Final = "go"

Failpoint = Literal[
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
    # Once for each EndTxn, or more often if it is sent again. They are pipelined: at end.before all earlier ones on the same
    # connection are on their way, at end.after some of the others.
    "end.before",  # an EndTxn is about to be sent
    "end.after",  # an answer has come
    "complete.before",
    "complete.after",
    "sweep.before",  # the end of what nobody will commit
    "sweep.after",
    "commit.end",
]


class FailpointError(RuntimeError):
    """Raised where a test makes this point fail, or nobody listens on the port."""


def reach(name: Failpoint, batch: int = -1) -> None:
    """Tells the test that this process has come to `name`, and waits until it may go on.

    Without the variable it does nothing. With it, nothing that comes over the socket is run: the answer is to go on, or the text
    of a FailpointError. Whoever may set an executor's environment could have it run anything without this.

    Args:
        name: the point.
        batch: the number of the batch; -1 where it is not known.
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
