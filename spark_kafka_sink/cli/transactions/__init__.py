"""`spark-kafka-sink transactions`: what is open, prepared or half committed, and how it is ended."""
