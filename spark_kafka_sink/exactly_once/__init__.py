"""Exactly-once delivery: decides when the transactions of a batch are committed. Independent of Spark."""
