"""The request handlers, with a file for each domain. `kafka_apis.HANDLERS` is the index."""
