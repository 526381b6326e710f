"""The controller of all brokers of this process: topics, leaders, configs, users and producer ids."""
