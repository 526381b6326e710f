"""Parts of `check`: the report, and the checks of brokers, topic, transactions and the DataFrame."""
