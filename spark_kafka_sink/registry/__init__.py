"""Client of Confluent's schema registry and of registries with the same HTTP API."""
