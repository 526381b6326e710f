"""The rules of our English that a machine can count."""
