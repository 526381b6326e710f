"""`spark-kafka-sink transactions`: lists and ends transactions that are open, prepared or partly committed."""
