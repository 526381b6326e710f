"""Bytes of records: columns in, magic-2 record batches out, and back."""
