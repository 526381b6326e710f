"""Where records wait in batches: dealt, given memory, encoded, queued by partition, numbered."""
