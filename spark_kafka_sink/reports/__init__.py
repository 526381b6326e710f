"""The report of what was delivered, and its views: text, HTML, charts and tables."""
