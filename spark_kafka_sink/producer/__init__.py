"""The Kafka producer: partitioners, record accumulator, buffer pool, sender, error policy and transactions."""
