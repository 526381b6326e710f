"""What a broker does with each request: a file for each API."""
