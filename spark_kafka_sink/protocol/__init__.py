"""The bytes of Kafka's messages: each API's fields declared once, one codec that interprets them, error codes as facts."""
