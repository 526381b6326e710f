"""The server's side of SASL OAUTHBEARER (RFC 7628), in which a client presents a token."""

from __future__ import annotations

import logging
import re
from typing import Final

from spark_kafka_sink.broker.sasl.sasl_server import SaslAuthenticationError, SaslError
from spark_kafka_sink.broker.sasl.token_validator import TokenError, TokenValidator, ValidToken

logger = logging.getLogger(__name__)

OAUTHBEARER: Final = "OAUTHBEARER"

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)\x01")
_MESSAGE: Final = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_REFUSED: Final = '{"status":"invalid_token"}'
_HEARD: Final = b"\x01"


class OAuthBearerSaslServer:
    """One exchange with one client (Kafka's OAuthBearerSaslServer). It is not used after an error.

    A rejected token is answered with the error as JSON. The client acknowledges it, and only then the login fails. All
    extensions, such as `logicalCluster`, are accepted. authorization_id: the token's principal; None until the exchange is
    complete. expires_ms: the expiry of the token, in ms since 1970.
    """

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._was_refused = False
        self.authorization_id: str | None = None
        self.expires_ms: int | None = None

    def evaluate_response(self, response: bytes) -> bytes:
        """Returns the answer to the client's message. Raises SaslError."""
        if response == _HEARD and self._was_refused:
            raise SaslAuthenticationError(_REFUSED)
        self._was_refused = False
        text, requested = _token(response)
        try:
            token = self._validator.validate(text)
        except TokenError as error:
            logger.info("Rejected a token: %s", error)
            self._was_refused = True
            return _REFUSED.encode()
        self._accept(token, requested)
        return b""

    def _accept(self, token: ValidToken, requested: str) -> None:
        if requested not in ("", token.principal):
            raise SaslAuthenticationError(
                f"Authentication failed: Client requested an authorization id ({requested}) that is different from the token's "
                f"principal name ({token.principal})"
            )
        self.authorization_id, self.expires_ms = token.principal, token.expires_ms


def _token(message: bytes) -> tuple[str, str]:
    """Returns the token and the authorization id of a client's message. Raises SaslError, never with the token."""
    match = _MESSAGE.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise SaslError("Invalid OAUTHBEARER client first message")
    pairs = dict(_PAIR.findall(match["pairs"]))
    if "auth" not in pairs:
        raise SaslError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = _AUTH.fullmatch(pairs["auth"])
    if auth is None:
        raise SaslError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth["scheme"].lower() != "bearer":
        raise SaslError(f"Invalid scheme in OAUTHBEARER client first message: {auth['scheme']}")
    return auth["token"], match["authzid"] or ""
