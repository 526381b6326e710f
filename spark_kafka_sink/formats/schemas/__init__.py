"""Serializers whose schemas are in a registry."""
