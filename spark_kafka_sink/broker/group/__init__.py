"""Consumer groups: Kafka's GroupCoordinator with the classic protocol. Start at group_coordinator.py; the decisions are pure."""
