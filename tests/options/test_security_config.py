"""Options of security: names, values, and what goes together."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import ABSENT, REQUIRED, Option
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.options.secret import Secret, resolve
from spark_kafka_sink.options.security_config import (
    ALIASES,
    ONE_VALUE,
    PLAINTEXT,
    SECURITY_NAMES,
    SECURITY_OPTIONS,
    SecurityConfig,
    security_config,
    security_warnings,
)
from tests.every import every
from tests.golden_options import java_options

JAVA = java_options()
TLS = {"security.protocol": "SSL"}
PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
OIDC = {
    **OAUTH,
    "sasl.oauthbearer.token.endpoint.url": "https://id/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "s",
}
PACKAGE = "org.apache.kafka.common.security"


def without(settings: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in names}


# The table


def in_javas_words(option: Option) -> str:
    return "null" if option.java is None else option.kind.text(option.java)


@every("option", SECURITY_OPTIONS.values())
def test_what_is_called_javas_default_is_javas_default(option: Option) -> None:
    if option.java is ABSENT:
        assert option.name not in JAVA
    else:
        assert in_javas_words(option) == JAVA[option.name].default
        assert option.default is not REQUIRED
        assert option.default == option.java or option.differs.endswith(".")


@every("name", [name for name in SECURITY_OPTIONS if name in JAVA])
def test_passwords_are_javas_passwords(name: str) -> None:
    assert SECURITY_OPTIONS[name].kind.is_secret == (JAVA[name].kind == "PASSWORD")


@pytest.mark.parametrize("name", [name for name in SECURITY_OPTIONS if name in JAVA and JAVA[name].bounds])
def test_numbers_have_javas_bounds(name: str) -> None:
    low, high = JAVA[name].bounds or (0.0, 0.0)
    parse = SECURITY_OPTIONS[name].parse
    whole = JAVA[name].kind != "DOUBLE"
    assert [parse(str(int(each) if whole else each)) for each in (low, high)] == [low, high]
    for outside in (low - 1, high + 1):
        with pytest.raises(OptionError):
            parse(str(int(outside) if whole else outside))


@every("option", SECURITY_OPTIONS.values())
def test_every_option_says_what_it_does(option: Option) -> None:
    assert option.doc.endswith(".")


@every("option", SECURITY_OPTIONS.values())
def test_a_default_as_it_is_written_is_read_as_that_default(option: Option) -> None:
    if option.default is not None:
        assert option.parse(option.kind.text(option.default)) == option.default


def test_without_options_it_is_plain_text() -> None:
    assert security_config({}) == SecurityConfig() == PLAINTEXT
    assert producer_config({"bootstrap.servers": "a:1"}).security is PLAINTEXT
    assert not PLAINTEXT.uses_sasl
    assert not PLAINTEXT.uses_tls


# Names


@every("alias, name", ALIASES.items())
def test_librdkafkas_name_is_the_same_option(alias: str, name: str) -> None:
    value = "plain" if name == "sasl.mechanism" else "x"
    assert security_config({alias: value}) == security_config({name: value}) != PLAINTEXT
    assert security_config({alias: value, name: value}) == security_config({name: value})
    with pytest.raises(OptionError, match=f"{alias}.* are two names of one option but have different values"):
        security_config({alias: value, name: "gssapi"})


@every("name", ONE_VALUE)
def test_an_option_with_one_value_has_no_other(name: str) -> None:
    for value in ONE_VALUE[name].accepted:
        assert security_config({name: value}) == security_config({name: f"a.b.{value}"}) == PLAINTEXT
    with pytest.raises(OptionError, match=rf"^\[OPTION\] option {name}: only {ONE_VALUE[name].accepted[0]}") as caught:
        security_config({name: "hunter2"})
    assert "hunter2" not in str(caught.value)


@every(
    "name, meant",
    [
        ("ssl.truststore.locaton", "ssl.truststore.location"),
        ("sasl.jaas.conf", "sasl.jaas.config"),
        ("sasl.mechanismss", "sasl.mechanisms"),
        ("security.protocoll", "security.protocol"),
        ("proxy.uri", "proxy.url"),
    ],
)
def test_an_unknown_name_gets_the_nearest_known_one(name: str, meant: str) -> None:
    with pytest.raises(OptionError, match=rf"unknown option {name}; did you mean {meant}\?"):
        producer_config({"bootstrap.servers": "a:1", name: "x"})


# Values


@every(
    "name, value, field, read",
    [
        ("security.protocol", "sasl_ssl", "security_protocol", "SASL_SSL"),
        ("sasl.mechanism", " scram-sha-512 ", "sasl_mechanism", "SCRAM-SHA-512"),
        ("ssl.endpoint.identification.algorithm", "HTTPS", "ssl_endpoint_identification_algorithm", "https"),
        ("ssl.endpoint.identification.algorithm", "", "ssl_endpoint_identification_algorithm", ""),
        ("ssl.endpoint.identification.algorithm", "none", "ssl_endpoint_identification_algorithm", ""),
        ("ssl.protocol", "TLS", "ssl_protocol", "TLSv1.3"),
        ("ssl.protocol", "tlsv1.2", "ssl_protocol", "TLSv1.2"),
        ("ssl.enabled.protocols", "TLSv1.3, TLSv1.2,TLSv1.3", "ssl_enabled_protocols", "TLSv1.3,TLSv1.2"),
        ("ssl.enabled.protocols", ["TLSv1.2"], "ssl_enabled_protocols", "TLSv1.2"),
        ("ssl.cipher.suites", ["A", "B"], "ssl_cipher_suites", "A,B"),
        ("ssl.truststore.type", "pkcs12", "ssl_truststore_type", "PKCS12"),
        ("sasl.login.refresh.window.factor", "0.75", "sasl_login_refresh_window_factor", 0.75),
    ],
)
def test_a_value_is_read(name: str, value: object, field: str, read: object) -> None:
    security = {**TLS, **PLAIN} if name in ("sasl.mechanism", "security.protocol") else {}
    assert getattr(security_config({**security, name: value}), field) == read


@every(
    "name, value, said",
    [
        ("security.protocol", "TLS", "'TLS' is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("sasl.mechanism", "DIGEST-MD5", "'DIGEST-MD5' is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("ssl.protocol", "TLSv1.1", "TLS versions before 1.2 are insecure"),
        ("ssl.protocol", "SSLv3", "TLS versions before 1.2 are insecure"),
        ("ssl.protocol", "TLSv1.4", "'TLSv1.4' is not TLSv1.2 or TLSv1.3"),
        ("ssl.enabled.protocols", "TLSv1,TLSv1.2", "TLS versions before 1.2 are insecure"),
        ("ssl.enabled.protocols", ",", "',' is not TLSv1.2, TLSv1.3 or both"),
        ("ssl.endpoint.identification.algorithm", "LDAPS", "'LDAPS' is not https, or empty"),
        ("ssl.truststore.type", "BKS", "'BKS' is not one of PEM, PKCS12, JKS"),
        ("sasl.login.refresh.window.factor", "nan", "'nan' is not a number from 0.5 to 1.0"),
        ("sasl.login.refresh.window.jitter", True, "True is not a number"),
        ("sasl.login.connect.timeout.ms", "1s", "'1s' is not a whole number"),
        ("ssl.ca.location", " ", "' ' is not a non-empty string"),
        ("sasl.password", "", "the value is not a non-empty string"),
        ("sasl.password", 1234567, "the value is not a non-empty string"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: object, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        security_config({name: value})
    assert str(caught.value).startswith(f"[OPTION] option {name}: {said}")
    assert "1234567" not in str(caught.value)


# References


def test_texts_keep_their_references_and_other_values_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("SERVERS", "a:1,b:2")
    made = producer_config(
        {
            **PLAIN,
            "bootstrap.servers": "${env:SERVERS}",
            "security.protocol": "${env:PROTOCOL}",
            "sasl.username": "${env:USER_LATER}",
            "sasl.password": "${env:PASSWORD_LATER}",
            "ssl.ca.location": "${env:FOLDER_LATER}/ca.pem",
        }
    )
    assert (made.bootstrap_servers, made.security.security_protocol) == (("a:1", "b:2"), "SASL_SSL")
    monkeypatch.setenv("PASSWORD_LATER", "later")
    monkeypatch.setenv("FOLDER_LATER", "/later")
    assert made.security.sasl_password is not None
    assert made.security.sasl_password.reveal() == "later"
    assert resolve(made.security.ssl_ca_location or "") == "/later/ca.pem"


def test_a_list_of_servers_may_have_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST", "a:1")
    assert producer_config({"bootstrap.servers": ["${env:FIRST}", "b:2"]}).bootstrap_servers == ("a:1", "b:2")


@every("name", ONE_VALUE)
def test_one_that_cannot_be_read_names_an_option_of_one_value(name: str) -> None:
    with pytest.raises(OptionError, match="environment variable NOT_THERE is not set") as caught:
        security_config({name: "${env:NOT_THERE}"})
    assert caught.value.facts == {"option": name, "reference": "${env:NOT_THERE}"}


def test_one_that_cannot_be_read_names_its_option() -> None:
    with pytest.raises(
        OptionError, match=r"option linger\.ms: \$\{env:NOT_THERE\}: environment variable NOT_THERE is not set"
    ) as caught:
        producer_config({"bootstrap.servers": "a:1", "linger.ms": "${env:NOT_THERE}"})
    assert caught.value.facts == {"option": "linger.ms", "reference": "${env:NOT_THERE}"}


@pytest.mark.parametrize("name", ["linger.ms", "bootstrap.servers", "security.protocol", "ssl.protocol"])
def test_what_a_reference_yields_is_in_no_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTAKEN", "hunter2")
    with pytest.raises(OptionError, match=rf"option {name}: the value of its reference is not ") as caught:
        producer_config({"bootstrap.servers": "a:1", name: "${env:MISTAKEN}"})
    assert "hunter2" not in str(caught.value)


def test_configured_providers_read_each_kind_of_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "7")
    options = {
        "config.providers": "e",
        "config.providers.e.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    made = producer_config(
        {
            **PLAIN,
            **options,
            "bootstrap.servers": "a:1",
            "linger.ms": "${e:X}",
            "sasl.username": "${e:X}",
            "sasl.password": "${e:X}",
        }
    )
    copied = pickle.loads(pickle.dumps(made))
    assert copied == made
    assert made.linger_ms == 7
    for security in (made.security, copied.security):
        assert security.sasl_password is not None
        assert resolve(security.sasl_username or "") == security.sasl_password.reveal() == "7"


# What goes together


@every(
    "options, said",
    [
        ({**TLS, "ssl.ca.location": "a", "ssl.truststore.location": "b"}, "ssl.truststore.location and ssl.ca.location cannot"),
        ({**TLS, "ssl.ca.pem": "a", "ssl.truststore.location": "b"}, "ssl.truststore.certificates and ssl.truststore"),
        ({**TLS, "ssl.keystore.key": "a"}, "option ssl.keystore.certificate.chain: it is not set"),
        ({**TLS, "ssl.keystore.certificate.chain": "a"}, "option ssl.keystore.key: it is not set"),
        ({**TLS, "ssl.key.location": "a"}, "option ssl.certificate.location: it is not set"),
        ({**TLS, "ssl.certificate.location": "a"}, "option ssl.key.location: it is not set"),
        ({**TLS, "ssl.keystore.password": "a"}, "option ssl.keystore.password: it is set, but ssl."),
        ({**TLS, "ssl.truststore.password": "a"}, "option ssl.truststore.password: it is set, but ssl."),
        ({**TLS, "ssl.ca.pem": "a", "ssl.truststore.type": "JKS"}, "option ssl.truststore.type: must be PEM"),
        (without(PLAIN, "sasl.password"), "option sasl.password: sasl.mechanism=PLAIN requires sasl.username and sasl.password"),
        (without(PLAIN, "sasl.username"), "option sasl.username: sasl.mechanism=PLAIN requires"),
        ({"security.protocol": "SASL_SSL"}, "option sasl.mechanism: it is not set, but security.protocol=SASL_SSL requires PL"),
        (without(PLAIN, "sasl.mechanism"), "option sasl.username: sasl.mechanism is not set and defaults to GSSAPI"),
        ({**PLAIN, "sasl.jaas.config": f"{PACKAGE}.plain.PlainLoginModule required username=u password=p;"}, "not be combined"),
        (
            {**without(PLAIN, "sasl.username", "sasl.password"), "sasl.jaas.config": "a.PlainLoginModule required username=u;"},
            'option sasl.jaas.config: PlainLoginModule requires username="..." and password="..."',
        ),
        (
            {**without(PLAIN, "sasl.username", "sasl.password"), "sasl.jaas.config": "a.ScramLoginModule required;"},
            "option sasl.jaas.config: ScramLoginModule is for SCRAM-SHA-256 or SCRAM-SHA-512, but sasl.mechanism=PLAIN",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.jaas.config": "a.PlainLoginModule required username=u password=p;"},
            "option sasl.jaas.config: PlainLoginModule is for PLAIN, but sasl.mechanism is not set and defaults to GSSAPI",
        ),
        (OAUTH, "option sasl.mechanism: sasl.mechanism=OAUTHBEARER requires one of sasl.oauthbearer.token,"),
        ({**OIDC, "sasl.oauthbearer.token": "t"}, "are different token sources"),
        (
            without(OIDC, "sasl.oauthbearer.client.credentials.client.secret"),
            "option sasl.oauthbearer.client.credentials.client.secret: it is not set",
        ),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "id/token"}, "must begin with https://"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://me:hunter2@id/token"}, "must not contain a user"),
        (
            {**OAUTH, "sasl.login.callback.handler.class": "io.example.MyHandler"},
            "option sasl.login.callback.handler.class: must be one of OAuthBearerLoginCallbackHandler",
        ),
        (
            {**OAUTH, "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
            "IAMClientCallbackHandler requires sasl.mechanism=AWS_MSK_IAM",
        ),
        (
            {**OAUTH, "sasl.jaas.config": 'x.OAuthBearerLoginModule required oauth.refresh.token="hunter2";'},
            "option sasl.jaas.config: only ",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        security_config(options)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.facts["option"] in options.keys() | SECURITY_OPTIONS.keys()


@every(
    "options",
    [
        TLS,
        {**TLS, "ssl.truststore.location": "a", "ssl.truststore.password": "b", "ssl.truststore.type": "JKS"},
        {**TLS, "ssl.keystore.location": "a", "ssl.keystore.password": "b", "ssl.key.password": "c"},
        {**TLS, "ssl.ca.location": "a", "ssl.certificate.location": "b", "ssl.key.location": "b", "ssl.key.password": "c"},
        PLAIN,
        {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512", "security.protocol": "SASL_PLAINTEXT"},
        {**without(PLAIN, "sasl.username", "sasl.password"), "sasl.jaas.config": "${env:NOT_THERE}"},
        OIDC,
        {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "file:///run/token"},
        {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "${env:URL}"},
        {**OAUTH, "sasl.oauthbearer.token": "t"},
        {**OAUTH, "sasl.oauthbearer.token.provider": print},
        {"security.protocol": "SASL_SSL", "sasl.kerberos.service.name": "kafka"},
        {"security.protocol": "SASL_SSL", "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": "shadeddatabricks.software.amazon.msk.auth.iam.IAMLoginModule required;",
            "sasl.client.callback.handler.class": "shadeddatabricks.software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        },
    ],
)
def test_what_goes_together_is_taken(options: dict[str, object]) -> None:
    assert security_config(options).security_protocol == options["security.protocol"]


@pytest.mark.parametrize(
    ("handler", "provider"),
    [
        ("software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler", "aws"),
        ("com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler", "google"),
    ],
)
def test_a_clouds_login_handler_is_its_token_provider(handler: str, provider: str) -> None:
    made = security_config(
        {**OAUTH, "sasl.login.callback.handler.class": handler, "sasl.jaas.config": "x.OAuthBearerLoginModule required;"}
    )
    assert made.sasl_oauthbearer_token_provider == provider


@pytest.mark.parametrize(
    "options",
    [
        'clientId="me" clientSecret="a\\"b\\\\c" scope="s" extension_logicalCluster="lkc-1" extension_identityPoolId=pool-2',
        'oauth.client.id="me" oauth.client.secret="a\\"b\\\\c" oauth.scope="s" extension_logicalCluster="lkc-1"'
        ' extension_identityPoolId="pool-2" oauth.token.endpoint.uri="https://id/token"',
    ],
)
def test_a_login_line_of_a_token_says_what_options_say(options: str) -> None:
    kafkas = {} if "endpoint" in options else {"sasl.oauthbearer.token.endpoint.url": "https://id/token"}
    line = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required {options};"
    made = security_config({**OAUTH, **kafkas, "sasl.jaas.config": line})
    assert made.sasl_oauthbearer_client_credentials_client_id == "me"
    assert made.sasl_oauthbearer_client_credentials_client_secret == Secret('a"b\\c')
    assert made.sasl_oauthbearer_scope == "s"
    assert made.sasl_oauthbearer_extensions == "logicalCluster=lkc-1,identityPoolId=pool-2"
    assert made.sasl_oauthbearer_token_endpoint_url == "https://id/token"


def test_an_option_wins_over_the_login_line() -> None:
    line = "x.OAuthBearerLoginModule required clientId=other clientSecret=other;"
    assert security_config({**OIDC, "sasl.jaas.config": line}).sasl_oauthbearer_client_credentials_client_id == "me"


# Warnings


@every(
    "options, said",
    [
        ({"ssl.ca.location": "a"}, ["security.protocol is PLAINTEXT, so these options are ignored: ssl.ca.location"]),
        (without(PLAIN, "security.protocol"), ["security.protocol is PLAINTEXT, so these options are ignored: sasl.mechanism,"]),
        ({**PLAIN, "security.protocol": "SSL"}, ["security.protocol is SSL, so these options are ignored: sasl.mechanism"]),
        ({**PLAIN, "security.protocol": "SASL_PLAINTEXT"}, ["SASL_PLAINTEXT with PLAIN sends the password unencrypted"]),
        ({**PLAIN, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}, []),
        (
            {**OAUTH, "security.protocol": "SASL_PLAINTEXT", "sasl.oauthbearer.token": "t"},
            ["SASL_PLAINTEXT with OAUTHBEARER sends the token"],
        ),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "AWS_MSK_IAM"}, ["AWS_MSK_IAM sends a signed token"]),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "http://id/"}, ["the client secret is sent unencrypted"]),
        (TLS, []),
        (PLAIN, []),
        (OIDC, []),
        ({}, []),
    ],
)
def test_what_is_allowed_and_not_safe_has_a_warning(options: dict[str, str], said: list[str]) -> None:
    warnings = security_warnings(security_config(options))
    assert len(warnings) == len(said)
    for text, part in zip(warnings, said, strict=True):
        assert part in text


# Secrets

EVERY_SECRET = {
    name: "-----hunter2-----\"'\\" for name, option in SECURITY_OPTIONS.items() if option.kind.is_secret and "jaas" not in name
}


def every_secret() -> ProducerConfig:
    return producer_config(
        {"bootstrap.servers": "a:1", **EVERY_SECRET, "sasl.jaas.config": "x.PlainLoginModule required p=hunter2;"}
    )


def test_a_config_shows_no_secret() -> None:
    config = every_secret()
    assert len(EVERY_SECRET) >= 10
    shown: list[Any] = [config, config.security, config.settings(), config.security.settings(), config.security.given()]
    assert "hunter2" not in "".join(map(repr, shown)) + "".join(map(str, shown))
    assert repr(config).count("[hidden]") == len(EVERY_SECRET) + 1


def test_plugins_are_told_secrets_as_secrets() -> None:
    told = every_secret().settings()
    assert set(SECURITY_OPTIONS) <= set(told)
    assert all(isinstance(told[name], Secret) for name in EVERY_SECRET)


def test_equal_options_are_equal_and_hash_alike_also_when_they_were_pickled() -> None:
    config = every_secret()
    assert {config: 1}[pickle.loads(pickle.dumps(config))] == 1
    other = producer_config({"bootstrap.servers": "a:1", **EVERY_SECRET, "sasl.password": "other"})
    assert other != config


def test_names_are_listed_once() -> None:
    assert len(set(SECURITY_NAMES)) == len(SECURITY_NAMES)


def test_the_repr_of_a_token_provider_is_not_shown() -> None:
    made = security_config({**OAUTH, "sasl.oauthbearer.token.provider": functools.partial(print, "hunter2")})
    assert "hunter2" not in repr(made)
    assert "partial" in repr(made)
