"""Tests of records/: the bytes of record batches."""
