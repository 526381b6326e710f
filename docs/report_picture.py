"""`python -m docs.report_picture` writes docs/pictures/report.svg: the report of a publish() call, as a notebook shows it.

The SVG holds the report's own HTML, so browsers render it as they do in a notebook, in light and in dark.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.broker import EmbeddedBroker

FILE = Path(__file__).parent / "pictures" / "report.svg"
WIDTH, ROW_HEIGHT, HEIGHT_OF_REST = 760, 25, 400

STYLE = """
  body { margin: 0; padding: 12px 16px; font: 13px/1.5 system-ui, sans-serif; color: #1f2328; background: #ffffff; }
  .cell { color: #57606a; font: 12px ui-monospace, monospace; margin: 0 0 8px; }
  tbody tr:nth-child(odd) { background: #f6f8fa; }
  @media (prefers-color-scheme: dark) {
    body { color: #e6edf3; background: #0d1117; } .cell { color: #9198a1; }
    tbody tr:nth-child(odd) { background: #161b22; }
  }
"""


def main(rows: int = 1_000_000, partitions: int = 6) -> None:
    """Publishes `rows` rows to an embedded broker and writes the picture."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        with EmbeddedBroker() as broker:
            broker.create_topic("events", partitions=partitions)
            df = spark.range(rows).selectExpr("cast(id as string) as key", "to_json(struct(id, uuid() as session)) as value")
            for _ in range(2):  # the first one starts Spark's Python processes
                report = sks.publish(
                    df, topic="events", bootstrap_servers=broker.bootstrap_servers, options={"kafka.compression.type": "lz4"}
                )
    finally:
        spark.stop()
    FILE.write_text(picture(report._repr_html_(), HEIGHT_OF_REST + ROW_HEIGHT * partitions), encoding="utf-8")


def picture(html: str, height: int) -> str:
    """Returns an SVG image of this height that shows `html`."""
    body = f'<p class="cell">sks.publish(df, topic="events", bootstrap_servers="localhost:9092")</p>{html}'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">\n'
        f'<foreignObject width="100%" height="100%"><body xmlns="http://www.w3.org/1999/xhtml"><style>{STYLE}</style>\n'
        f"{body}\n</body></foreignObject>\n</svg>\n"
    )


if __name__ == "__main__":
    main()
    print(FILE, file=sys.stderr)
