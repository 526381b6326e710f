"""The broker's reactor: one Acceptor per listener, N Processors, one request queue, M handlers. Knows no topic and no log."""
