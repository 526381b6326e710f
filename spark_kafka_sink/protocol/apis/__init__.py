"""The messages of Kafka's APIs, a file for each API or group of APIs."""
