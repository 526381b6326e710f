"""Records sent one by one: check, buffer, append as columns, and report the outcome."""
