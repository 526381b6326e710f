"""What a broker does with each request: a file for each domain. `kafka_apis.HANDLERS` is the index."""
