"""The pages of this folder that are made from the code, and what makes them: `make docs`."""
