"""The broker's reactor: an Acceptor per listener, Processors, a request queue, handlers. It does not know topics or logs."""
