"""The metrics of a producer, under the names of Java's (docs/metrics.md)."""
