"""The documentation: Markdown pages, the generators of some of them, and the settings of the site. See `make docs`."""
