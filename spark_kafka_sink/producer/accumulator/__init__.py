"""Batches of waiting records: assigns rows to batches, allocates memory, encodes, queues by partition, and numbers batches."""
