"""Spark's planner and committer: on the driver, often in processes of their own."""
