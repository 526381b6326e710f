"""A broker for development and tests: Kafka's protocol and behaviour in this process, without Java. Production is Kafka."""
