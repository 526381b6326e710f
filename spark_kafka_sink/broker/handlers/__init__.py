"""Handlers of a broker's requests: a file for each domain. `kafka_apis.HANDLERS` is the index."""
