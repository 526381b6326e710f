"""Logins: the client's side of each SASL mechanism, without sockets."""
