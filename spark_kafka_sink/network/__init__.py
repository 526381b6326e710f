"""Sockets: a selector, frames, channels and the wakeup of a waiting thread. It does not know messages or clusters."""
