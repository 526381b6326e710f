"""The batches in which records wait: rows are dealt, given memory, encoded, queued by partition, numbered."""
