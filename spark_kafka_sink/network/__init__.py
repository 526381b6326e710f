"""Sockets: a selector, frames, channels and the wake-up of a waiting thread. Knows no message and no cluster."""
