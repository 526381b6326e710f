"""The server's side of SASL OAUTHBEARER (RFC 7628): a client shows a token."""

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
    """Kafka's OAuthBearerSaslServer: one exchange with one client. It is not used after an error.

    A token that does not count is answered with a JSON of the error. The client says that it has heard it, and only then the
    login fails. Extensions, such as `logicalCluster`, are accepted whatever they are. authorization_id: the token's principal;
    None until the exchange is complete. expires_ms: when the token expires, in ms since 1970.
    """

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._was_refused = False
        self.authorization_id: str | None = None
        self.expires_ms: int | None = None

    def evaluate_response(self, response: bytes) -> bytes:
        """Takes what the client sent; returns what it is sent. Raises SaslError."""
        if response == _HEARD and self._was_refused:
            raise SaslAuthenticationError(_REFUSED)
        self._was_refused = False
        text, requested = _token(response)
        try:
            token = self._validator.validate(text)
        except TokenError as error:
            logger.info("A token is refused: %s", error)
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
