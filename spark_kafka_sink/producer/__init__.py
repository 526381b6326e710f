"""A Kafka producer: partitioners, record accumulator, buffer pool, sender, error policy, transactions."""
