"""`make test-extras`: installs each extra of the wheel alone, in an environment of its own, and uses it once.

`make test` has every library installed, so it does not see an extra that lacks one. It has neither Polars nor DuckDB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LIMIT_S: Final = 900.0

_BROKER: Final = """
from spark_kafka_sink.broker import EmbeddedBroker, EmbeddedRegistry
import spark_kafka_sink as sks
"""
_SPARK: Final = (
    _BROKER
    + """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""
)
# A server that answers as the clouds' metadata services do.
_CLOUD: Final = """
import base64, http.server, json, os, threading
claims = base64.urlsafe_b64encode(json.dumps({"sub": "spark", "exp": 4_000_000_000}).encode()).decode().rstrip("=")
class Metadata(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        token = {"access_token": f"e30.{claims}.", "token_type": "Bearer", "expires_in": 3600, "expires_on": "4000000000"}
        account = token | {"email": "spark@example.com", "scopes": ["all"], "aliases": ["default"]}
        self.send_response(200)
        self.send_header("Metadata-Flavor", "Google")
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"project" if "project" in self.path else json.dumps(account).encode())
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
threading.Thread(target=server.serve_forever, daemon=True).start()
host = f"127.0.0.1:{server.server_port}"
os.environ |= {"GCE_METADATA_HOST": host, "GCE_METADATA_IP": host}
os.environ |= {"IDENTITY_ENDPOINT": f"http://{host}/token", "IDENTITY_HEADER": "x"}
os.environ |= {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-west-1"}
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.sasl.cloud_tokens import token_provider
"""
_REGISTRY: Final = (
    _BROKER
    + """
with EmbeddedBroker() as broker, EmbeddedRegistry() as registry:
    broker.create_topic("t")
    options = {"bootstrap.servers": broker.bootstrap_servers, "schema.registry.url": registry.url}
    with sks.Producer(options | {"value.serializer": FORMAT, "value.schema": SCHEMA}) as producer:
        producer.send("t", {"name": "a"}).result(60)
"""
)

USES: Final[Mapping[str, str]] = {
    "": _BROKER
    + """
with EmbeddedBroker() as broker, sks.Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
    broker.create_topic("t")
    assert producer.send("t", b"a").result(60).offset == 0
""",
    "spark": _SPARK
    + """
with EmbeddedBroker() as broker:
    broker.create_topic("t")
    sks.register(spark)
    frame = spark.range(5).selectExpr("cast(id as string) as value")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
    frame.write.format("kafka_sink").options(**options).mode("append").save()
    assert sks.publish(frame, options=options).total.records == 5
""",
    "tls": _BROKER
    + """
with EmbeddedBroker(tls=True) as broker, sks.Producer(broker.client_settings) as producer:
    broker.create_topic("t")
    producer.send("t", b"a").result(60)
""",
    "aws": _CLOUD + 'assert token_provider("aws", SecurityConfig())("b-1.kafka.eu-west-1.amazonaws.com").value',
    "azure": _CLOUD + 'assert token_provider("azure", SecurityConfig())("n.servicebus.windows.net").value',
    "gcp": _CLOUD + 'assert token_provider("google", SecurityConfig())("kafka.example.com").value',
    "kerberos": "import gssapi; from spark_kafka_sink.security.sasl.gssapi_client import GssapiClient",
    "protobuf": 'FORMAT, SCHEMA = "protobuf", "syntax = \\"proto3\\"; message M { string name = 1; }"' + _REGISTRY,
    "json-schema": 'FORMAT, SCHEMA = "json-schema", {"type": "object", "properties": {"name": {"type": "string"}}}' + _REGISTRY,
    "spark,prometheus": _SPARK
    + """
from prometheus_client import CollectorRegistry, generate_latest
registry = CollectorRegistry()
registry.register(sks.DriverCollector(sks.register(spark)))
assert b"kafka_sink" in generate_latest(registry)
""",
    "spark,opentelemetry": _SPARK
    + """
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
sks.export_opentelemetry(sks.register(spark), MeterProvider([reader]))
assert reader.get_metrics_data() is not None
""",
    "spark,openlineage": _SPARK + "sks.emit_lineage(spark, sks.register(spark)).stop()",
    " polars duckdb pyspark-client": _BROKER
    + """
import duckdb, polars
with EmbeddedBroker() as broker:
    broker.create_topic("t")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
    rows = polars.DataFrame({"key": ["a", None], "value": ["1", "2"]})
    names = polars.Series("value", ["x"], dtype=polars.Categorical)
    assert sks.publish(rows, options=options).total.records == 2
    assert sks.publish(polars.DataFrame([names]), options=options).total.records == 1
    many = duckdb.sql("SELECT 'k' || range AS key, 'v' AS value FROM range(5000)")
    assert sks.publish(many, options=options).total.records == 5000
    once = options | {"delivery.guarantee": "exactly-once"}
    assert sks.publish(duckdb.sql("SELECT 'last' AS value"), options=once).total.records == 1
    last = sks.tail("t", 5004, bootstrap_servers=broker.bootstrap_servers)
    assert {b"1", b"2", b"x", b"v", b"last"} == set(last["value"].to_pylist()), last
""",
    "verify": "import confluent_kafka, confluent_kafka.schema_registry.avro",
    "all": "import azure.identity, botocore, cryptography, google.auth, grpc_tools, jsonschema, openlineage.client, pyspark",
}
"""Extras of pyproject.toml, after a space other libraries, and a program that needs them. Without a name: the wheel alone."""


def main() -> int:
    """Returns 1 if a program failed. Each has the error of Python on stderr."""
    parser = argparse.ArgumentParser("python -m tests.extras", description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--python", nargs="+", default=[sys.executable], help="Interpreters, each of which makes the environments."
    )
    parser.add_argument("--only", nargs="+", default=list(USES), choices=list(USES))
    asked = parser.parse_args()
    failed = 0
    for python in asked.python:
        for extra in asked.only:
            problem = used(asked.wheel.resolve(), extra, python)
            failed += problem is not None
            print(f"{python} [{extra}]: {problem or 'used'}", flush=True)
    return int(failed > 0)


def used(wheel: Path, extra: str, python: str) -> str | None:
    """Installs the wheel with an extra and runs its program. Returns what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        name, *beside = extra.split(" ")
        wanted = [f"{wheel}[{name}]" if name else str(wheel), *beside]
        steps = (
            [python, "-m", "venv", folder],
            [f"{folder}/bin/python", "-m", "pip", "install", "-q", *wanted],
            [f"{folder}/bin/python", "-W", "error", "-c", USES[extra]],
        )
        # As an active environment is: Spark's workers are the `python3` of PATH.
        active = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
        active["PATH"] = f"{folder}/bin{os.pathsep}{active['PATH']}"
        for step in steps:
            ran = subprocess.run(step, cwd=folder, env=active, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            if ran.returncode:
                return f"{step[1:4]} failed: {ran.stderr[-2000:]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
