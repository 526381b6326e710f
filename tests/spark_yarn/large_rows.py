"""The program that spark-submit runs: writes large rows in a batch job. Its argument is a plan in JSON:

rows, tasks: how many there are. size: of each value, in bytes. sink: the options of the sink.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("large rows").getOrCreate()
    numbers = spark.range(plan["rows"], numPartitions=plan["tasks"])
    rows = numbers.selectExpr("cast(id as string) as key", f"repeat('x', {plan['size']}) as value")
    rows.write.format("kafka_sink").options(**plan["sink"]).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
