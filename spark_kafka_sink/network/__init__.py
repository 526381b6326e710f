"""Sockets: a selector, frames, channels and the wakeup of a waiting thread. It knows no messages and no cluster."""
