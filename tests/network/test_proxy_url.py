"""parse_proxy: what proxy.url may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.network.proxy import Proxy, parse_proxy
from spark_kafka_sink.options.secret import Secret
from tests.every import every


@every(
    "url, proxy",
    [
        ("socks5://proxy:1080", Proxy("socks5", "proxy", 1080)),
        ("SOCKS5H://proxy:1080/", Proxy("socks5h", "proxy", 1080)),
        (" http://10.0.0.1:3128\n", Proxy("http", "10.0.0.1", 3128)),
        ("socks5h://[::1]:1080", Proxy("socks5h", "::1", 1080)),
        ("http://ann:pass@proxy:3128", Proxy("http", "proxy", 3128, "ann", "pass")),
        ("socks5://a%40b:%2F%3A%22%C3%A9@proxy:1080", Proxy("socks5", "proxy", 1080, "a@b", '/:"é')),
        ("socks5://ann@proxy:1080", Proxy("socks5", "proxy", 1080, "ann", "")),
    ],
)
def test_an_url_names_scheme_host_port_and_login(url: str, proxy: Proxy) -> None:
    assert parse_proxy(url) == proxy


@every(
    "url, text",
    [
        ("proxy:1080", "must begin with one of socks5://, socks5h://, http://"),
        ("", "must begin with one of"),
        ("https://ann:S3CRET@proxy:1", "must begin with one of"),
        ("socks4://ann:S3CRET@proxy:1", "must begin with one of"),
        ("socks5://ann:S3CRET@proxy", "must name a host and a port; write socks5://user:password@host:1080"),
        ("http://ann:S3CRET@proxy", "must name a host and a port; write http://user:password@host:3128"),
        ("http://ann:S3CRET@:3128", "must name a host and a port; write http://user:password@host:3128"),
        ("socks5h://ann:p@S3CRET/w@proxy:1080", "must name a host and a port; write socks5h://user:password@host:1080"),
        ("http://ann:S3CRET@proxy:0", "must name a host and a port"),
        ("http://ann:S3CRET@proxy:99999", "its host or port is not valid"),
        ("http://ann:S3CRET@proxy:x", "its host or port is not valid"),
        ("http://ann:S3CRET@[::1:3128", "its host or port is not valid"),
        ("http://ann:12#S3CRET@proxy:3128", "nothing may follow the port"),
        ("http://ann:12/S3CRET@proxy:3128", "nothing may follow the port"),
        ("http://ann:S3CRET@proxy:3128/path", "nothing may follow the port"),
        ("http://:S3CRET@proxy:3128", "a password but no user"),
        ("http://ann%3A:S3CRET@proxy:3128", "must not contain a colon"),
        (f"socks5://ann:{'S3CRET' * 43}@proxy:1080", "at most 255 bytes"),
        (f"socks5://ann:{'S3CRET' * 43}\ud800@proxy:1080", "at most 255 bytes"),
    ],
)
def test_any_other_url_is_an_error_that_does_not_show_the_password(url: str, text: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_proxy(url)
    assert text in error.value.message
    assert error.value.message.startswith("option proxy.url: ")
    assert error.value.facts == {"option": "proxy.url"}
    assert "S3CRET" not in f"{error.value!r} {error.value.__cause__!r} {error.value.__suppress_context__}"
    assert error.value.__suppress_context__


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("socks5h://ann:${env:PROXY_PASSWORD}@proxy:1080", Proxy("socks5h", "proxy", 1080, "ann", "p@s/s:#%41${env:X}")),
        ("http://${env:PROXY_USER}:${file:{}/a@b:k}@proxy:1", Proxy("http", "proxy", 1, "a/n", "from:a@file")),
        ("http://a%40b:${env:PROXY_PASSWORD}%41@proxy:1", Proxy("http", "proxy", 1, "a@b", "p@s/s:#%41${env:X}A")),
        ("socks5://${env:PROXY_HOST}", Proxy("socks5", "proxy", 1080)),
        ("${env:PROXY_URL}", Proxy("http", "proxy", 3128, "ann", "p@ss")),
    ],
)
def test_what_references_stand_for_is_not_encoded(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a@b").write_text("k=from:a@file\n")
    monkeypatch.setenv("PROXY_PASSWORD", "p@s/s:#%41${env:X}")
    monkeypatch.setenv("PROXY_USER", "a/n")
    monkeypatch.setenv("PROXY_HOST", "proxy:1080")
    monkeypatch.setenv("PROXY_URL", "http://ann:p%40ss@proxy:3128")
    assert parse_proxy(Secret(url.replace("{}", str(tmp_path)))) == proxy


def test_a_reference_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(OptionError, match="PROXY_NOWHERE"):
        parse_proxy(Secret("socks5h://ann:${env:PROXY_NOWHERE}@proxy:1080"))


def test_a_proxy_is_shown_without_user_and_password() -> None:
    proxy = parse_proxy("socks5h://ann:S3CRET@[::1]:1080")
    assert str(proxy) == "socks5h://[::1]:1080"
    assert "S3CRET" not in repr(proxy)
    assert "ann" not in repr(proxy)
