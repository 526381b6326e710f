"""The package as it is installed: what it contains, imports and needs, and what it says where that is missing."""
