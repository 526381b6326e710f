"""Proxies to test with: a small one of ours, and those of Debian where they are installed."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from spark_kafka_sink.network.proxy import Proxy
from tests.kafka.ports import free_ports
from tests.network.small_proxy import SmallProxy
from tests.waiting import wait_until

KINDS: Final = (("small", "socks5"), ("small", "http"), ("microsocks", "socks5"), ("tinyproxy", "http"))
"""Each proxy and what it speaks."""

_TINYPROXY_CONF: Final = """\
Port {port}
Listen 127.0.0.1
Timeout 60
MaxClients 20
LogFile "{folder}/tinyproxy.log"
LogLevel Info
{login}
"""


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that runs."""

    speaks: str
    host: str
    port: int

    def as_proxy(self, scheme: str = "", user: str = "", password: str = "") -> Proxy:
        return Proxy(scheme or self.speaks, self.host, self.port, user, password if user else None)


@contextlib.contextmanager
def running(kind: str, speaks: str, folder: Path, user: str = "", password: str = "") -> Iterator[Running]:
    """Runs a proxy that asks for a login if a user is given. Skips the test where the program is not installed."""
    if kind == "small":
        small = SmallProxy(speaks, user, password)
        try:
            yield Running(speaks, *small.address)
        finally:
            small.close()
        return
    program = shutil.which(kind)
    if program is None:
        pytest.skip(f"{kind} is not installed: apt-get install {kind if kind == 'microsocks' else 'tinyproxy-bin'}")
    (port,) = free_ports(1)
    if kind == "microsocks":
        login = ["-u", user, "-P", password] if user else []
        arguments = ["-i", "127.0.0.1", "-p", str(port), *login]
    else:
        conf = folder / "tinyproxy.conf"
        login_line = f"BasicAuth {user} {password}" if user else ""
        conf.write_text(_TINYPROXY_CONF.format(port=port, folder=folder, login=login_line))
        arguments = ["-d", "-c", str(conf)]
    process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until_it_listens(port, process)
        yield Running(speaks, "127.0.0.1", port)
    finally:
        process.terminate()
        process.wait(60)


def _until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    def listens() -> bool:
        assert process.poll() is None, "the proxy ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(listens, "the proxy listens")
