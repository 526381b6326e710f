"""Names in certificates as Java writes them, and the rules that make principals of them."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.broker.network.tls import NoMatchingRuleError, SslPrincipalMapper, distinguished_name
from tests.every import every


def subject(*parts: tuple[str, str]) -> dict[str, Any]:
    """As ssl.SSLSocket.getpeercert has it."""
    return {"subject": tuple((part,) for part in parts)}


@every(
    "parts, name",
    [
        ([("commonName", "ana")], "CN=ana"),
        (
            [("countryName", "DE"), ("organizationName", "Acme, Inc."), ("organizationalUnitName", "Dev"), ("commonName", "ana")],
            r"CN=ana,OU=Dev,O=Acme\, Inc.,C=DE",
        ),
        ([("stateOrProvinceName", "BY"), ("localityName", " M "), ("userId", "#1")], r"UID=\#1,L=\ M\ ,ST=BY"),
        ([("commonName", 'a"+;<>\\b')], r"CN=a\"\+\;\<\>\\b"),
        ([("emailAddress", "a@b.c"), ("commonName", "é")], "CN=é,1.2.840.113549.1.9.1=#1605614062" + "2e63"),
    ],
)
def test_names(parts: list[tuple[str, str]], name: str) -> None:
    assert distinguished_name(subject(*parts)) == name


# Those of Kafka's SslPrincipalMapperTest.
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L , "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L , "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=JavaSoft,o=Sun Microsystems,C=US", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_counts(name: str, principal: str) -> None:
    assert SslPrincipalMapper(RULES).name(name) == principal


@every(
    "rules, principal",
    [
        ("DEFAULT", "CN=ana,O=x"),
        (r"RULE:^CN=(\w+),.*$/user\/$1/", "user/ana"),
        ("RULE:^CN=(\\w+),.*$/$1$2/", "ana$2"),
        ("RULE:^CN=(\\w+),.*$/$12/", "ana2"),
        ("RULE:nobody/x/,DEFAULT", "CN=ana,O=x"),
    ],
)
def test_rules(rules: str, principal: str) -> None:
    assert SslPrincipalMapper(rules).name("CN=ana,O=x") == principal


def test_a_name_without_a_rule() -> None:
    with pytest.raises(NoMatchingRuleError, match="matches CN=ana"):
        SslPrincipalMapper("RULE:^CN=bob$/bob/").name("CN=ana")


@pytest.mark.parametrize("rules", ["default", "RULE:(/x/", "RULE:a"])
def test_what_is_no_rule(rules: str) -> None:
    with pytest.raises(ValueError, match="Invalid rule"):
        SslPrincipalMapper(rules)
