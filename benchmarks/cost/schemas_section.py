"""The section on schemas of docs/performance.md. Its figures are those that the two commands in it printed."""

from __future__ import annotations

from typing import Final

SCHEMAS: Final = """## Schemas

`value.format=avro` encodes whole columns. One record has 5 fields without nulls and takes 36 bytes.
The other one has 20 fields of 7 types and takes 124 bytes. Half of its fields are nullable, and a
tenth of their values is null. The figures are medians of 5 rounds, measured on 2026-11-26 on the
machine above, with nothing else running. Times of rounds differ by up to a third.

| CPU time, µs a row | this sink | fastavro | pyruhvro, then the schema's id | pyruhvro alone |
| --- | ---: | ---: | ---: | ---: |
| 5 fields | 0.081 | 4.22 | 0.098 | 0.059 |
| 20 fields, half nullable | 0.387 | 14.4 | 0.232 | 0.205 |

- This sink writes the schema's id before each value, as Confluent's wire format wants it.
- fastavro is `schemaless_writer` for each row, from dicts that were made before.
- pyruhvro encodes columns in Rust, and with 20 fields it takes 0.6 times the time of this sink.
  It does not write the schema's id, so Arrow puts it before each value. It knows no decimals, no
  times of day and no fixed. It writes 0 for a null that the schema does not allow.
- An append of 5 columns takes 2.4 times the CPU time of an append of the same bytes as a binary
  column.

The next table is from Parquet files to Kafka in one Spark application, with lz4 and 8 partitions. A
run has 1,000,000 rows. The CPU time includes the driver's Python processes.

| record | writer | CPU time, µs a row | rows/s |
| --- | --- | ---: | ---: |
| 5 fields | this sink | 2.24 (1.84 to 2.46) | 770,000 |
| 5 fields | `to_avro` and Spark's own sink | 2.94 (2.43 to 3.18) | 483,000 |
| 5 fields | `to_avro` and Spark's own sink, tuned | 2.35 (1.78 to 2.49) | 734,000 |
| 20 fields, half nullable | this sink | 4.74 (4.47 to 5.06) | 377,000 |
| 20 fields, half nullable | `to_avro` and Spark's own sink | 6.60 (5.99 to 6.74) | 228,000 |
| 20 fields, half nullable | `to_avro` and Spark's own sink, tuned | 4.38 (4.16 to 4.85) | 395,000 |

This sink asks a real registry. `to_avro` knows none, so it writes values without the schema's id. It
is that of spark-avro 4.1.1.

```
python -m benchmarks --only avro-5 avro-20 avro-append
python -m benchmarks.avro_under_spark
```

"""
