"""A client for a Kafka cluster: metadata, connections, API versions, requests in flight."""
