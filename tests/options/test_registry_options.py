"""Options of the registry's client: names, values, and what goes together."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import ABSENT
from spark_kafka_sink.options.registry_options import REGISTRY_OPTIONS, registry_config
from spark_kafka_sink.options.schema_options import is_registry_option
from spark_kafka_sink.registry.http import Timing
from spark_kafka_sink.registry.registry_client import RegistryClient
from tests.every import every

URL = "schema.registry.url"
HERE = {URL: "http://localhost:8081"}
USER_INFO = "schema.registry.basic.auth.user.info"
BEARER = "schema.registry.bearer.auth"
OAUTH = {
    f"{BEARER}.issuer.endpoint.url": "https://id.example/token",
    f"{BEARER}.client.id": "me",
    f"{BEARER}.client.secret": "hunter2",
}


def refused(**changes: Any) -> str:
    with pytest.raises(OptionError) as error:
        registry_config({**HERE, **changes})
    assert "hunter2" not in str(error.value) + repr(error.value.facts)
    return error.value.message


def test_the_defaults() -> None:
    config = registry_config(HERE)

    assert config.url.reveal() == "http://localhost:8081"
    assert (config.request_timeout_ms, config.max_retries) == (30_000, 3)
    assert (config.retries_wait_ms, config.retries_max_wait_ms) == (1000, 20_000)
    assert config.cache_capacity == 1000
    assert config.proxy is config.basic_auth_user_info is config.bearer_auth_token is None


def test_each_option_has_a_description_and_says_how_java_differs() -> None:
    for name, option in REGISTRY_OPTIONS.items():
        assert name == option.name
        assert name.startswith("schema.registry.")
        assert option.doc.endswith(".")
        assert "broker" not in option.doc
        assert "librdkafka" not in option.doc
        assert option.java is ABSENT or option.default == option.java or option.differs.endswith(".")


def test_each_option_is_read() -> None:
    config = registry_config(
        {
            **HERE,
            "schema.registry.request.timeout.ms": "2500",
            "schema.registry.max.retries": "7",
            "schema.registry.retries.wait.ms": "8",
            "schema.registry.retries.max.wait.ms": "9",
            "schema.registry.cache.capacity": "10",
            "schema.registry.proxy": "http://proxy:3128",
            "schema.registry.ssl.endpoint.identification.algorithm": "",
            "schema.registry.ssl.ca.location": "/ca.pem",
        }
    )

    assert (config.request_timeout_ms, config.max_retries, config.retries_wait_ms) == (2500, 7, 8)
    assert (config.retries_max_wait_ms, config.cache_capacity) == (9, 10)
    assert config.proxy is not None
    assert config.proxy.reveal() == "http://proxy:3128"
    assert (config.tls.ssl_ca_location, config.tls.ssl_endpoint_identification_algorithm) == ("/ca.pem", "")


def test_logins_may_be_written_without_the_prefix() -> None:
    assert is_registry_option("basic.auth.user.info")
    assert not is_registry_option("url")
    assert not is_registry_option("ssl.ca.location")
    assert registry_config({**HERE, "basic.auth.user.info": "u:p"}) == registry_config({**HERE, USER_INFO: "u:p"})
    assert registry_config({**HERE, "basic.auth.user.info": "u:p", USER_INFO: "u:p"}).basic_auth_user_info is not None
    assert "has another value" in refused(**{"basic.auth.user.info": "u:hunter2", USER_INFO: "u:p"})


@every(
    "value, words",
    [
        ("localhost:8081", "each URL must begin with https:// or http://"),
        ("mock://tests", "each URL must begin with https:// or http://"),
        ("http://", "'http://' is not a valid URL"),
        ("http://host:port", "'http://host:port' is not a valid URL"),
        ("http://[::1", r"'http://[::1' is not a valid URL"),
        ("http://a b", "'http://a b' is not a valid URL"),
        ("http://a\nb", r"is not a valid URL"),
        ("http://höst", "with special characters percent-encoded"),
        ("http://a?b", "'http://a?b' has a query or a fragment"),
        (" , ", "must be one or more URLs"),
        ("http://hunter2@a", "a URL has a user without a password"),
        ("http://u:hunter2@a,b", "each URL must begin with"),
        ("http://u:hun/ter2@a", "a URL is not a valid URL"),
        ("", "the value is not one or more URLs"),
    ],
)
def test_a_url_that_is_none(value: str, words: str) -> None:
    message = refused(**{URL: value})

    assert message.startswith(f"option {URL}: ")
    assert words in message
    assert "ter2" not in message


def test_the_url_is_required() -> None:
    with pytest.raises(OptionError, match=r"option schema\.registry\.url: it is not set; set it to the address"):
        registry_config({})


@every(
    "options, words",
    [
        ({USER_INFO: "hunter2"}, "the value must be user:password"),
        ({USER_INFO: "u:hunter2", URL: "http://u:hunter2@a"}, "cannot be combined with a user in schema.registry.url"),
        ({"schema.registry.basic.auth.credentials.source": "USER_INFO"}, f"USER_INFO requires {USER_INFO}"),
        ({"schema.registry.basic.auth.credentials.source": "URL"}, "requires a user and a password in schema.registry.url"),
        ({"schema.registry.basic.auth.credentials.source": "SASL_INHERIT"}, f"not supported: set {USER_INFO}"),
        ({"schema.registry.basic.auth.credentials.source": "x"}, "is not one of USER_INFO, URL"),
        ({f"{BEARER}.credentials.source": "STATIC_TOKEN"}, f"{BEARER}.token: it is not set, but"),
        ({f"{BEARER}.credentials.source": "OAUTHBEARER"}, f"{BEARER}.issuer.endpoint.url: it is not set, but"),
        ({f"{BEARER}.credentials.source": "OAUTHBEARER_AZURE_IMDS"}, "is not supported"),
        ({f"{BEARER}.credentials.source": "CUSTOM"}, "is not supported"),
        ({f"{BEARER}.client.secret": "hunter2"}, f"it requires {BEARER}.issuer.endpoint.url"),
        ({f"{BEARER}.token": "hunter2", USER_INFO: "u:hunter2"}, "cannot be combined with a user and a password"),
        ({f"{BEARER}.token": "hunter2", URL: "http://u:hunter2@a"}, "cannot be combined with a user and a password"),
        ({f"{BEARER}.token": "hunter2", **OAUTH, f"{BEARER}.credentials.source": "OAUTHBEARER"}, "cannot be combined with"),
        ({**OAUTH, f"{BEARER}.issuer.endpoint.url": "https://a:hunter2@x"}, "a user in the URL is not supported; set"),
        ({"schema.registry.proxy.host": "a"}, "unknown option schema.registry.proxy.host; use schema.registry.proxy"),
        ({"schema.registry.http.read.timeout.ms": "1"}, "use schema.registry.request.timeout.ms"),
        ({"schema.registry.cache.latest.ttl.sec": "1"}, "; the latest version is asked for once per application or producer"),
        ({"bearer.auth.custom.provider.function": "f"}, "unknown option bearer.auth.custom.provider.function"),
        ({"schema.registry.ulr": "hunter2"}, "unknown option schema.registry.ulr; did you mean schema.registry.url?"),
        ({"schema.registry.timeout": "30"}, "unknown option schema.registry.timeout; use schema.registry.request.timeout.ms"),
        ({"schema.registry.request.timeout.ms": "0"}, "is not a whole number from 1"),
        ({"schema.registry.max.retries": "-1"}, "is not a whole number from 0"),
        ({"schema.registry.ssl.key.location": "/key.pem"}, "schema.registry.ssl.certificate.location"),
        ({"schema.registry.ssl.enabled.protocols": "TLSv1"}, "option schema.registry.ssl.enabled.protocols: TLS versions before"),
    ],
)
def test_options_that_are_not_accepted(options: dict[str, str], words: str) -> None:
    assert words in refused(**options)


@every(
    "proxy, words",
    [
        ("socks5://u:hunter2@a:1080", "the URL must begin with http://; other proxies"),
        ("https://u:hunter2@a:1080", "the URL must begin with http://; other proxies"),
        ("http://u:hunter2@a", "the URL must name a host and a port"),
    ],
)
def test_a_proxy_that_no_client_can_use(proxy: str, words: str) -> None:
    config = registry_config({**HERE, "schema.registry.proxy": proxy})

    with pytest.raises(OptionError, match=rf"option schema\.registry\.proxy: {words}") as error:
        RegistryClient(config)
    assert "hunter2" not in str(error.value) + repr(error.value.facts)


def test_only_names_of_options_get_the_prefix_in_an_error(tmp_path: Path) -> None:
    path = tmp_path / "ssl.ca.location"
    config = registry_config({URL: "https://localhost:1", "schema.registry.ssl.ca.location": str(path)})

    with pytest.raises(OptionError, match=r"^\[OPTION\] option schema\.registry\.ssl\.ca\.location: ") as error:
        RegistryClient(config)

    assert str(path) in error.value.message
    assert error.value.facts["option"] == "schema.registry.ssl.ca.location"


SECRETS = {
    URL: "https://alice:hunter2@localhost:1",
    "schema.registry.proxy": "http://alice:hunter2@localhost:2",
    "schema.registry.ssl.key.password": "hunter2",
    "schema.registry.ssl.keystore.key": "hunter2",
    "schema.registry.ssl.keystore.certificate.chain": "hunter2",
}


@pytest.mark.parametrize(
    "options",
    [SECRETS, {**HERE, USER_INFO: "alice:hunter2"}, {**HERE, f"{BEARER}.token": "hunter2"}, {**HERE, **OAUTH}],
)
def test_a_config_is_a_value_that_shows_no_secret(options: dict[str, str]) -> None:
    config = registry_config(options)

    assert "hunter2" not in repr(config) + str(config)
    assert pickle.loads(pickle.dumps(config)) == config == registry_config(options)
    assert hash(config) == hash(registry_config(options))
    assert config != registry_config({**options, "schema.registry.request.timeout.ms": "1"})


def test_references_are_resolved_when_a_client_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGISTRY", raising=False)
    config = registry_config({URL: "${env:REGISTRY}", "schema.registry.proxy": "${env:PROXY_OF_ALICE}"})

    with pytest.raises(OptionError, match=r"option schema\.registry\.url: .*environment variable REGISTRY is not set"):
        RegistryClient(config)
    monkeypatch.setenv("REGISTRY", "ftp://hunter2")
    with pytest.raises(OptionError, match="must begin with https:// or http://"):
        RegistryClient(config)
    monkeypatch.setenv("REGISTRY", "http://localhost")
    monkeypatch.setenv("PROXY_OF_ALICE", "socks5://alice:hunter2@host:1080")
    with pytest.raises(OptionError, match=r"option schema\.registry\.proxy: the URL must begin with http://") as error:
        RegistryClient(config)
    assert "hunter2" not in str(error.value)


def test_providers_of_references_may_be_given(tmp_path: Path) -> None:
    options = {
        **HERE,
        "config.providers": "here",
        "config.providers.here.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.here.param.allowlist.pattern": "NOTHING",
        USER_INFO: "${here:HOME}",
        "schema.registry.ssl.ca.location": "${here:HOME}",
    }
    config = registry_config(options)
    assert config.basic_auth_user_info is not None

    with pytest.raises(OptionError, match="does not match"):
        config.basic_auth_user_info.reveal()
    with pytest.raises(OptionError, match="does not match"):
        RegistryClient(registry_config({**options, URL: "https://localhost"}), timing=Timing())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({USER_INFO: "u:p"}, "begins with http://: the password is sent unencrypted; use https://"),
        ({URL: "http://u:p@a"}, "the schema registry http://a begins with http://: the password"),
        ({f"{BEARER}.token": "t"}, "begins with http://: the token is sent unencrypted"),
        ({**OAUTH, f"{BEARER}.issuer.endpoint.url": "http://a"}, ".issuer.endpoint.url begins with http://: the client secret"),
        ({"schema.registry.ssl.ca.location": "/ca"}, "so these options are ignored: schema.registry.ssl.ca.location"),
        ({URL: "https://a", "schema.registry.ssl.endpoint.identification.algorithm": ""}, "may be that of any host"),
    ],
)
def test_settings_that_are_unsafe_are_logged(options: dict[str, str], words: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        RegistryClient(registry_config({**HERE, **options})).close()

    assert words in caplog.text


def test_the_usual_settings_log_nothing(caplog: pytest.LogCaptureFixture) -> None:
    RegistryClient(registry_config(HERE)).close()
    RegistryClient(registry_config({URL: "https://u:p@a"})).close()

    assert caplog.text == ""
