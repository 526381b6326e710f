"""Programs for spark-submit: publish a stream, export a batch, verify a topic; and the demo of all of it."""
