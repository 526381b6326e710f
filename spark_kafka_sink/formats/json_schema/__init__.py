"""JSON Schema: columns are compared with a schema, checked by it and written as JSON."""
