"""Single values: decoded by other clients, converted to a column's type, and shown."""
