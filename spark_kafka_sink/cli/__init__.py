"""The command line, `spark-kafka-sink`. What a command needs is imported when it runs."""
