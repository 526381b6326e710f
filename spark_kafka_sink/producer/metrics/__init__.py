"""What a producer measures of itself, under the names of Java's (docs/metrics.md)."""
