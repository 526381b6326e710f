"""Bytes of keys and values: Kafka's own serializers over Arrow columns and single values, JSON, and what a program brings."""
