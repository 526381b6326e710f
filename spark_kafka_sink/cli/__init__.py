"""The command line, `spark-kafka-sink`. Each command imports what it needs when it runs."""
