"""Avro's binary encoding of whole Arrow columns: parse a schema or derive one, fit it to a column's type, encode."""
