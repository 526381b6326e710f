"""Exactly once: who commits the transactions of a batch, and when. Knows no Spark."""
