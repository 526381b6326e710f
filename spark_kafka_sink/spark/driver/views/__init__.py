"""Views in a terminal or a notebook: a bar, a table of queries, a history."""
