"""The user's program: the sink's calls there, and what they report."""
