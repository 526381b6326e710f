"""A forked child that ends as a program does leaves its parent's exporters alone."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys
from types import SimpleNamespace
from opentelemetry.sdk.trace import TracerProvider
from spark_kafka_sink.exporters.lineage_settings import lineage_settings
from spark_kafka_sink.exporters.openlineage import LineageEmitter
from spark_kafka_sink.exporters.tracing import trace_writes
from tests.spark.counting import counting

parent = os.getpid()

def say(text):
    return lambda *args, **named: print(text, "of the parent" if os.getpid() == parent else "of the child", flush=True)

metrics = counting()
remove = metrics.writes.remove
metrics.writes.remove = lambda one: (say("end of " + type(one.__self__).__name__)(), remove(one))
spark = SimpleNamespace(streams=SimpleNamespace(addListener=say("listens"), removeListener=say("listens no more")))
client = SimpleNamespace(emit=say("emits"), close=say("closes"))
emitter = LineageEmitter(spark, metrics, client, lineage_settings({}, {}, "4.0.0"), 60)
tracer = trace_writes(metrics, TracerProvider(shutdown_on_exit=False))
child = os.fork()
if not child:
    sys.exit(0)
_, status = os.waitpid(child, 0)
say(f"child ended with {os.waitstatus_to_exitcode(status)}: go on")()
"""


def test_a_forked_child_that_ends_stops_no_exporter_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [
        "listens of the parent",
        "child ended with 0: go on of the parent",
        "end of WriteTracer of the parent",
        "end of LineageEmitter of the parent",
        "listens no more of the parent",
        "closes of the parent",
    ], done.stderr
