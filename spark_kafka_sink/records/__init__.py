"""The bytes of records: encodes columns to magic-2 record batches and decodes them."""
