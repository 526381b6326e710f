"""Kafka's wire protocol: declarations of each API's messages, one codec for all of them, and facts about error codes."""
