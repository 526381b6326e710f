"""Spark's Python workers: a task's rows on their way to the producer."""
