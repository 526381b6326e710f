"""A partition's log: record batches as they came, in segment files of Kafka's own format or in memory."""
