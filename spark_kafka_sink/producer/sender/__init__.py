"""The sender thread: sends what is ready and handles each response."""
