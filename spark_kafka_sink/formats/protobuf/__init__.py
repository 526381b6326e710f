"""Protobuf's encoding of whole Arrow columns: read descriptors or derive them, fit them to a column's type, encode."""
