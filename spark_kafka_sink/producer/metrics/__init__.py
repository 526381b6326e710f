"""The metrics of a producer, with the names of Java's client (docs/metrics.md)."""
