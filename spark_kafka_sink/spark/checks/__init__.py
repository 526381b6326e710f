"""The parts of `check`: the report, and what is looked at on brokers, topic, transactions and in Spark."""
