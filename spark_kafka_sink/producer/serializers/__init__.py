"""Serializers for keys and values: Kafka's own, JSON, and user-supplied ones, for Arrow columns and single values."""
