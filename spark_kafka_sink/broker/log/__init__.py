"""A partition's log: unchanged record batches, in segment files of Kafka's format or in memory."""
