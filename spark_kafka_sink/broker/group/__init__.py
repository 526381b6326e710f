"""Consumer groups: Kafka's GroupCoordinator with the classic protocol. Start at group_coordinator.py; what decides is pure."""
