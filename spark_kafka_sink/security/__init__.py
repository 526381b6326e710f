"""Secure connections: TLS, SASL logins, tokens and proxies. Used by the client and partly by the embedded broker."""
