"""The broker's reactor: an Acceptor per listener, N Processors, one request queue, M handlers. Knows no topic and no log."""
