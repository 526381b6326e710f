"""The section on schemas of docs/performance.md. Its figures are those that the two commands in it printed."""

from __future__ import annotations

from typing import Final

SCHEMAS: Final = """## Schemas

`value.format=avro` encodes whole columns. One record has 5 fields without nulls and takes 36 bytes.
The other one has 20 fields of 7 types and takes 124 bytes. Half of its fields are nullable, and a
tenth of their values is null. The figures are medians of 5 rounds, measured on 2026-11-24 on the
machine above. Other programs used both cores at that time.

| CPU time, µs a row | this sink | fastavro | pyruhvro, then the schema's id | pyruhvro alone |
| --- | ---: | ---: | ---: | ---: |
| 5 fields | 0.072 | 3.57 | 0.069 | 0.041 |
| 20 fields, half nullable | 0.467 | 13.1 | 0.208 | 0.176 |

- This sink writes the schema's id before each value, as Confluent's wire format wants it.
- fastavro is `schemaless_writer` for each row, from dicts that were made before.
- pyruhvro encodes columns in Rust, and with 20 fields it takes less than half the time of this sink.
  It does not write the schema's id, so Arrow puts it before each value. It knows no decimals, no
  times of day and no fixed. It writes 0 for a null that the schema does not allow.
- An append of 5 columns takes 2.2 times the CPU time of an append of the same bytes as a binary
  column.

The next table is from Parquet files to Kafka in one Spark application, with lz4 and 8 partitions. A
run has 1,000,000 rows. The CPU time includes the driver's Python processes.

| record | writer | CPU time, µs a row | rows/s |
| --- | --- | ---: | ---: |
| 5 fields | this sink | 1.92 (1.80 to 2.19) | 445,000 |
| 5 fields | `to_avro` and Spark's own sink | 2.52 (2.27 to 3.30) | 357,000 |
| 5 fields | `to_avro` and Spark's own sink, tuned | 1.98 (1.87 to 2.47) | 422,000 |
| 20 fields, half nullable | this sink | 4.91 (4.80 to 5.39) | 129,000 |
| 20 fields, half nullable | `to_avro` and Spark's own sink | 6.64 (6.54 to 7.04) | 126,000 |
| 20 fields, half nullable | `to_avro` and Spark's own sink, tuned | 4.95 (4.65 to 5.33) | 138,000 |

This sink asks a real registry. `to_avro` knows none, so it writes values without the schema's id. It
is that of spark-avro 4.1.1.

```
python -m benchmarks --only avro-5 avro-20 avro-append
python -m benchmarks.avro_under_spark
```

"""
