"""What a controller knows, once for all brokers of this process: topics, leaders, configs, producer ids."""
