"""A schema registry in this process. It is not part of the broker."""
