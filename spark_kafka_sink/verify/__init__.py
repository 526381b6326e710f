"""Reads topics back with another client, and compares them with the data that was written.

Start with `inspection.py` for `verify` without a source, and with `topic_records.py` for a comparison. A value goes through:

| file | what comes out |
| --- | --- |
| `read_back.py` | records as bytes, from confluent-kafka's consumer |
| `schema_ids.py`, `protobuf_files.py` | the schema that a record names |
| `decoding.py`, `values/json_values.py` | a Python value, from Confluent's deserializers |
| `values/conversion.py`, `values/protobuf_values.py` | a value of the source's column type, or what does not fit |
| `schema_limits.py` | what the schema cannot hold, which is no difference |
| `canonical.py` | JSON in which equal values have equal texts, made by Spark from both sides |
| `compared_records.py`, `key_partitions.py` | a hash and the partition of each record |
| `comparison.py`, `examples.py` | counts of what differs, and examples |

`record_errors.py` has the errors about one record, `outcome.py` the exit codes, `values/display.py` the JSON of `topics tail`.
"""
