"""Secure connections: TLS, logins by SASL, tokens, proxies. Shared by the client and, where both ends are alike, the broker."""
