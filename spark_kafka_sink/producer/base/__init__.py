"""Parts that all of the producer uses: its state, its records, its errors, and the rows that are bad."""
