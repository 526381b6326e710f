"""The version of this package: of the code itself, whatever distribution is installed beside it."""

__version__ = "0.1.0"
