"""Formats of a schema registry: Avro, Protobuf and JSON Schema for whole Arrow columns."""
