"""Principals from certificates: the distinguished name as Java writes it, and the rules that map it to a principal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# RFC 2253's short names, which `X500Principal.getName()` uses. Every other attribute is written as its number and DER bytes.
_SHORT: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_NUMBERS: Final[Mapping[str, tuple[str, int]]] = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),  # IA5String
    "serialNumber": ("2.5.4.5", 0x13),  # PrintableString
    "title": ("2.5.4.12", 0x0C),  # UTF8String
    "givenName": ("2.5.4.42", 0x0C),
    "surname": ("2.5.4.4", 0x0C),
    "dnQualifier": ("2.5.4.46", 0x13),
}
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """Returns the subject of a certificate from `ssl.SSLSocket.getpeercert`, in the form of RFC 2253: last part first."""
    parts = ("+".join(_attribute(name, value) for name, value in part) for part in reversed(certificate.get("subject", ())))
    return ",".join(parts)


def _attribute(name: str, value: str) -> str:
    short = _SHORT.get(name)
    if short is not None:
        return f"{short}={_escaped(value)}"
    number, tag = _NUMBERS.get(name, (name, 0x0C))
    data = value.encode()
    return f"{number}=#{bytes([tag, len(data)]).hex()}{data.hex()}" if len(data) < 128 else f"{number}={_escaped(value)}"


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped[:1] in (" ", "#"):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if escaped.endswith(" ") and len(value) > 1 else escaped


class NoMatchingRuleError(Exception):
    """No rule matches a name, so its client cannot be served."""


_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_BACK_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A mapping rule. `pattern` None: the name is unchanged (DEFAULT). `case`: L, U or empty."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def applied(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._replaced, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _replaced(self, match: re.Match[str]) -> str:
        groups = match.re.groups

        def value(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            number, rest = reference[2], ""
            while len(number) > 1 and int(number) > groups:
                number, rest = number[:-1], number[-1] + rest
            # A reference to a missing group is text, as in Kafka.
            return reference[0] if int(number) > groups else (match[int(number)] or "") + rest

        return _BACK_REFERENCE.sub(value, self.replacement)


class SslPrincipalMapper:
    """Maps names by `ssl.principal.mapping.rules`; the first rule that matches wins (Kafka's SslPrincipalMapper)."""

    def __init__(self, rules: str) -> None:
        """Parses the rules. Raises ValueError if one is invalid."""
        self._rules = tuple(_rules(rules.strip()))

    def name(self, distinguished: str) -> str:
        """Returns the name of the principal. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = rule.applied(distinguished)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of ssl.principal.mapping.rules matches {distinguished}")


def _rules(text: str) -> Sequence[_Rule]:
    rules = []
    for found in _SPLITTER.finditer(text):
        _, default, pattern, replacement, case, other = found.groups()
        if default:
            rules.append(_Rule())
        elif pattern is not None:
            try:
                rules.append(_Rule(re.compile(pattern), replacement, case))
            except re.error as error:
                raise ValueError(f"Invalid rule: {found[1]}: {error}") from None
        elif other:
            raise ValueError(f"Invalid rule: {other}")
    return rules
