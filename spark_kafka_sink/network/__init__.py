"""Station 6: sockets: selector, frames, channels, wake-up. Knows no message and no cluster."""
