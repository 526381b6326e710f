"""The URLs of a registry, which may hold a user and a password."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass, field
from typing import NoReturn

from spark_kafka_sink.errors import OptionError

_NOT_IN_A_URL = re.compile(r"[^\x21-\x7e]")


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A registry's address.

    Attributes:
        url: scheme, host, port and path, without a slash at its end and without user and password.
        user_info: user and password; None if the URL has none.
    """

    url: str
    user_info: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def is_encrypted(self) -> bool:
        return self.url.startswith("https:")


def base_urls(text: str, option: str) -> tuple[BaseUrl, ...]:
    """Parses a comma-separated list of URLs.

    Args:
        text: the list, without references.
        option: its option, for errors.

    Raises:
        OptionError: One of them is not a valid http or https URL. The error shows no URL with a user.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        _refuse(option, "the value must be one or more URLs, separated by commas")
    # A password may contain a comma, so its second half could look like a URL without a user.
    hides = "@" in text
    return tuple(_parsed(part, option, "a URL" if hides else repr(part)) for part in parts)


def _parsed(text: str, option: str, shown: str) -> BaseUrl:
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        _refuse(option, f"{shown} is not a valid URL")
    if parts.scheme not in ("http", "https"):
        # It may be a password that was set for the wrong option.
        _refuse(option, "each URL must begin with https:// or http://")
    if not host or port == 0 or _NOT_IN_A_URL.search(text):
        _refuse(option, f"{shown} is not a valid URL; write https://host:port with special characters percent-encoded")
    if parts.query or parts.fragment:
        _refuse(option, f"{shown} has a query or a fragment; remove it")
    user_info = None
    if parts.username is not None:
        if parts.password is None:
            _refuse(option, f"{shown} has a user without a password; write https://user:password@host")
        user_info = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password)
    place = parts.netloc.rpartition("@")[2]
    return BaseUrl(f"{parts.scheme}://{place}{parts.path.rstrip('/')}", user_info)


def _refuse(option: str, text: str) -> NoReturn:
    raise OptionError(f"option {option}: {text}", option=option) from None
