"""Logins: the server's side of SASL, without sockets."""
