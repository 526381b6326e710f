"""The sender's thread: what is ready goes out, and each answer is acted on."""
