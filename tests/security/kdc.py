"""MIT Kerberos in a folder of its own: a realm, its KDC on the loopback address, principals and keytabs.

Debian has it in krb5-kdc (the KDC, kdb5_util), krb5-admin-server (kadmin.local) and krb5-user (kinit). Without them the fixture
`kdc` skips its test and names what is missing. Nothing here needs root, and no file outside of the folder is read or written.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

import pytest

from tests.kafka.guardian import Guardian
from tests.kafka.ports import free_ports

REALM: Final = "SINK.TEST"
TOOLS: Final[Mapping[str, str]] = {
    "krb5kdc": "krb5-kdc",
    "kdb5_util": "krb5-kdc",
    "kadmin.local": "krb5-admin-server",
    "kinit": "krb5-user",
}
"""The programs that are needed, and the Debian package of each."""

_PATH: Final = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
_DEADLINE_S: Final = 60.0

_KRB5_CONF: Final = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    qualify_shortname = ""
    udp_preference_limit = 1
    forwardable = true
    default_ccache_name = FILE:{folder}/ccache
    kdc_timeout = 20000
    max_retries = 1

[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}

[domain_realm]
    localhost = {realm}
    127.0.0.1 = {realm}
"""

_KDC_CONF: Final = """\
[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = 127.0.0.1:{port}

[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/kadm5.acl
        max_life = 1d
        max_renewable_life = 7d
        supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
    }}

[logging]
    kdc = FILE:{folder}/kdc.log
    default = FILE:{folder}/kdc.log
"""


def missing_programs() -> str:
    """Returns why no KDC can be started here, with the packages to install; empty if one can."""
    packages = sorted({package for tool, package in TOOLS.items() if shutil.which(tool, path=_PATH) is None})
    return f"MIT Kerberos is not installed: apt-get install {' '.join(packages)}" if packages else ""


class Kdc:
    """A KDC for one realm. Used by one thread.

    Attributes:
        folder: holds the database, keytabs, ticket caches and the log `kdc.log`.
        port: the TCP port that the KDC listens on.
        krb5_conf: the client's configuration, for example for `-Djava.security.krb5.conf=`.
        environment: the variables that point MIT's programs and libraries at this realm.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_ports(1)[0]
        self.krb5_conf = folder / "krb5.conf"
        self.environment: Mapping[str, str] = {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/ccache",
            "KRB5_KTNAME": f"FILE:{folder}/nothing.keytab",
            "KRB5_CLIENT_KTNAME": f"FILE:{folder}/nothing.keytab",
            # Tests log in more than once a second, and a replay cache in /var/tmp is left behind.
            "KRB5RCACHETYPE": "none",
        }
        self._principals: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._guardian: Guardian | None = None

    def __enter__(self) -> Self:
        values = {"realm": REALM, "port": self.port, "folder": self.folder}
        self.krb5_conf.write_text(_KRB5_CONF.format(**values))
        (self.folder / "kdc.conf").write_text(_KDC_CONF.format(**values))
        (self.folder / "kadm5.acl").write_text("")
        self._guardian = Guardian()  # a test run that is killed leaves no KDC behind
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "a master password of tests")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._guardian is not None:
            self._guardian.close()

    def start(self) -> None:
        """Starts the KDC, and waits until it listens."""
        self._process = subprocess.Popen(
            [_program("krb5kdc"), "-n", "-r", REALM, "-P", str(self.folder / "pid")],
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if self._guardian is not None:
            self._guardian.watch_process(self._process.pid)
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    log = self.folder / "kdc.log"
                    raise RuntimeError(f"the KDC did not start: {log.read_text() if log.exists() else 'no log'}") from None
                time.sleep(0.02)

    def stop(self) -> None:
        """Ends the KDC, if it runs. Its database stays."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(_DEADLINE_S)
            if self._guardian is not None:
                self._guardian.forget_process(process.pid)

    def add(self, principal: str) -> None:
        """Adds a principal with a random key, unless it was added before. Its tickets live for a day."""
        if principal in self._principals:
            return
        self._principals.add(principal)
        self.kadmin("add_principal", "-maxlife", "1d", "-randkey", principal)

    def kadmin(self, command: str, *arguments: str) -> None:
        """Runs a command of kadmin.local, such as `delete_principal`."""
        self._run("kadmin.local", "-r", REALM, command, *arguments)

    def keytab(self, *principals: str) -> Path:
        """Returns a new keytab with the keys of principals, which have been added."""
        file = self.folder / f"{len(list(self.folder.glob('*.keytab')))}.keytab"
        self.kadmin("ktadd", "-norandkey", "-k", str(file), *principals)
        return file

    def ticket_cache(self, principal: str, keytab: Path) -> Path:
        """Returns a new ticket cache with a principal's ticket, as kinit leaves it."""
        file = self.folder / f"{len(list(self.folder.glob('*.ccache')))}.ccache"
        self._run("kinit", "-c", f"FILE:{file}", "-k", "-t", str(keytab), principal)
        return file

    def _run(self, tool: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(tool), *arguments],
            env=os.environ | self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        # kadmin.local may end with 0 although it failed, and says nothing where it did not.
        if done.returncode or (tool == "kadmin.local" and done.stderr):
            raise RuntimeError(f"{tool} {arguments[0]} failed: {done.stderr}")


def _program(tool: str) -> str:
    path = shutil.which(tool, path=_PATH)
    assert path is not None, missing_programs()
    return path


@pytest.fixture(scope="session")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A KDC without principals; tests add their own."""
    if reason := missing_programs():
        pytest.skip(reason)
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        yield kdc
