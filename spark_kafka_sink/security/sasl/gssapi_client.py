"""GSSAPI: a login with Kerberos (RFC 4752), through python-gssapi and the system's Kerberos library."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import AuthenticationError, DisconnectedError, OptionError, PeerError
from spark_kafka_sink.installation import install_extra
from spark_kafka_sink.options.secret import resolve
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.credentials import jaas_of

GSSAPI: Final = "GSSAPI"

READY_FOR_S: Final = 60.0
"""How long a first message may wait for its connection: a KDC allows five minutes of clock skew, and brokers differ as well."""

TOLD_FOR_S: Final = 5.0
"""How long a failure is kept for the login that caused it. A later login starts over, because the cause may be gone."""

_NO_LAYER: Final = 1
"""The bit of "no security layer" in RFC 4752. Kafka supports no other layer; only TLS encrypts."""

# Error codes of krb5.h.
_KRB5: Final = 2**32 - 1765328384
_CLIENT_UNKNOWN, _SERVER_UNKNOWN = _KRB5 + 6, _KRB5 + 7
_CLOCKS: Final = _KRB5 + 37
_KDC_UNREACHABLE: Final = _KRB5 + 156
_NO_TICKETS: Final = frozenset({_KRB5 + 32, _KRB5 + 141, _KRB5 + 195})  # AP_ERR_TKT_EXPIRED, CC_NOTFOUND, FCC_NOFILE
_KEYTAB: Final = frozenset({_KRB5 + 24, _KRB5 + 31, _KRB5 + 181})  # PREAUTH_FAILED, AP_ERR_BAD_INTEGRITY, KT_NOTFOUND
# As Kafka's KerberosError, and a KDC that is away or busy.
_FOR_A_WHILE: Final = frozenset({_KRB5 + 21, _KRB5 + 29, _KRB5 + 33, _KRB5 + 34, _KDC_UNREACHABLE})


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The client's principal and the service of a Kerberos login.

    Attributes:
        service: First part of the brokers' principals, such as kafka in kafka/host@REALM.
        principal: The client's principal; None for the default principal of the keytab or ticket cache.
        keytab: File with the principal's keys; None to use a ticket cache.
        ticket_cache: File with tickets; None for the default one, KRB5CCNAME.
    """

    service: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


def kerberos_settings(config: SecurityConfig) -> KerberosSettings:
    """Returns the settings; the login line comes first. Raises OptionError for missing or contradictory options."""
    jaas = jaas_of(config)
    said = {} if jaas is None else jaas.options
    option = "sasl.kerberos.service.name"
    services = {name for name in (said.get("serviceName"), _text(config.sasl_kerberos_service_name)) if name}
    if len(services) > 1:
        raise OptionError(
            f"option {option}: serviceName in sasl.jaas.config has a different value; set only one of them", option=option
        )
    if not services:
        text = "it is not set: set it to the first part of the brokers' principals, usually kafka"
        raise OptionError(f"option {option}: {text}", option=option)
    principal, keytab = said.get("principal"), said.get("keyTab")
    if jaas is not None and said.get("useKeyTab", "").lower() == "true" and not keytab:
        raise OptionError('option sasl.jaas.config: useKeyTab=true requires keyTab="/path"', option="sasl.jaas.config")
    if said.get("useKeyTab", "true").lower() != "true":
        keytab = None
    return KerberosSettings(
        services.pop(),
        principal or _text(config.sasl_kerberos_principal),
        keytab or _text(config.sasl_kerberos_keytab),
        said.get("ticketCache"),
    )


def _text(value: str | None) -> str | None:
    return None if value is None else resolve(value)


class _State(Enum):
    FIRST = auto()
    CONTEXT = auto()
    LAYER = auto()
    COMPLETE = auto()
    FAILED = auto()


class GssapiClient:
    """One login. It is created in a thread that may wait for the KDC; afterwards nothing waits."""

    def __init__(self, settings: KerberosSettings, host: str) -> None:
        """Gets the tickets. Raises AuthenticationError, or DisconnectedError where another attempt may succeed."""
        import gssapi

        self._host = host
        self._state = _State.FIRST
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        try:
            credentials = _credentials(settings)
            name = gssapi.Name(f"{settings.service}@{host}", gssapi.NameType.hostbased_service)
            self._context: Any = gssapi.SecurityContext(
                name=name, creds=credentials, mech=gssapi.MechType.kerberos, usage="initiate", flags=flags
            )
            self._first: bytes = self._context.step() or b""
            self._principal = str(credentials.name)
        except gssapi.exceptions.GSSError as error:
            raise _told(error, host, settings) from error

    def evaluate(self, challenge: bytes | None) -> bytes | None:
        import gssapi

        state, self._state = self._state, _State.FAILED
        try:
            if state is _State.FIRST and not challenge:
                self._state = _State.CONTEXT
                return self._first
            if state is _State.CONTEXT:
                message: bytes = self._context.step(challenge or b"") or b""
                self._state = _State.LAYER if self._context.complete else _State.CONTEXT
                return message
            if state is _State.LAYER:
                return self._choose_layer(challenge or b"")
        except gssapi.exceptions.GSSError as error:
            self._state = _State.FAILED
            raise _told(error, self._host) from error
        raise AuthenticationError("the broker sent a message that GSSAPI does not allow")

    def _choose_layer(self, challenge: bytes) -> bytes:
        offer: bytes = self._context.unwrap(challenge).message
        if len(offer) != 4:
            raise AuthenticationError(f"the broker's offer of security layers has {counted(len(offer), 'byte')}, must have 4")
        if not offer[0] & _NO_LAYER:
            raise AuthenticationError("the broker requires a GSSAPI security layer, which Kafka does not support")
        # Without a layer the size is 0. There is no authorization id: the broker uses the principal.
        reply: bytes = self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message
        self._state = _State.COMPLETE
        return reply

    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    def principal(self) -> str:
        return self._principal


def _credentials(settings: KerberosSettings) -> Any:
    import gssapi

    name = gssapi.Name(settings.principal, gssapi.NameType.kerberos_principal) if settings.principal else None
    store = {}
    if settings.keytab:
        path = settings.keytab.removeprefix("FILE:")
        if not os.access(path, os.R_OK):
            raise AuthenticationError(f"the keytab {path} does not exist or is not readable by this process")
        # A ticket cache in memory, which the library fills and refills before its tickets expire. There is one for each
        # identity, because a cache holds the tickets of one principal.
        identity = hashlib.sha256(f"{path}\0{settings.principal}".encode()).hexdigest()[:16]
        store = {"client_keytab": f"FILE:{path}", "ccache": f"MEMORY:spark-kafka-sink-{identity}"}
    elif settings.ticket_cache:
        store = {"ccache": settings.ticket_cache}
    try:
        return gssapi.Credentials(name=name, usage="initiate", store=store or None)
    except NotImplementedError as error:
        # macOS's own library lacks gss_acquire_cred_from.
        text = (
            "this Kerberos library does not accept a keytab or ticket cache by name: set KRB5_CLIENT_KTNAME or KRB5CCNAME instead"
        )
        raise AuthenticationError(text) from error


def _told(error: Any, host: str, settings: KerberosSettings | None = None) -> PeerError:
    """Returns a library error as one of ours. settings: those of a login without tickets yet, for the advice."""
    code = int(error.min_code) & 0xFFFFFFFF
    # If Kerberos has no code, its text is "Success" or "Unknown error"; GSSAPI's text then says more: "Invalid token ...".
    is_own = code >= 2**31  # those of com_err are negative
    texts = error.get_all_statuses(error.min_code if is_own else error.maj_code, not is_own)
    text = f"Kerberos: {'; '.join(str(each).strip() for each in texts)}"
    if code in _FOR_A_WHILE:
        return DisconnectedError(f"could not log in to {host}. {text}")
    return AuthenticationError(f"{text}{'' if settings is None else _advice(code, settings, host)}")


def _advice(code: int, settings: KerberosSettings, host: str) -> str:
    if code == _SERVER_UNKNOWN:
        principal = f"{settings.service}/{host}"
        return f". Connect with the host name in the broker's principal, or add the principal {principal}"
    if code == _CLIENT_UNKNOWN:
        return ". Check the principal and the realm"
    if code == _CLOCKS:
        return ". Synchronize the clocks of this machine, the KDC and the broker"
    if settings.keytab:
        whose = settings.principal or "the client"
        return (
            f". Check that {settings.keytab} holds the current key of {whose}: klist -kt" if code in _KEYTAB | _NO_TICKETS else ""
        )
    return ". Run kinit, or set a keytab: sasl.kerberos.keytab and sasl.kerberos.principal" if code in _NO_TICKETS else ""


class _Attempt:
    """A client that a thread is creating. `outcome` is set last."""

    def __init__(self, settings: KerberosSettings, host: str, wakeup: Callable[[], None]) -> None:
        self._settings = settings
        self._host = host
        self._wakeup = wakeup
        self.outcome: GssapiClient | PeerError | None = None
        self.ended_s = 0.0
        self._thread = threading.Thread(target=self._run, name="kafka-sink-kerberos", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            outcome: GssapiClient | PeerError = GssapiClient(self._settings, self._host)
        except PeerError as error:
            outcome = error
        except Exception as error:  # nothing must leave a login waiting
            outcome = AuthenticationError(f"Kerberos: {type(error).__name__}: {error}")
        self.ended_s = time.monotonic()
        self.outcome = outcome
        self._wakeup()

    def is_of_use(self) -> bool:
        """Returns whether it is running or has just ended. After a fork its thread is gone."""
        if self.outcome is None:
            return self._thread.is_alive()
        lasts_s = TOLD_FOR_S if isinstance(self.outcome, PeerError) else READY_FOR_S
        return time.monotonic() - self.ended_s < lasts_s


class GssapiMechanism:
    """Logs in with Kerberos tickets.

    Threads: the client's. A daemon thread asks the KDC for each login, because the library waits for it.
    """

    name: Final = GSSAPI

    def __init__(self, config: SecurityConfig, wakeup: Callable[[], None]) -> None:
        """Raises OptionError for a missing option, and if python-gssapi or the Kerberos library is missing."""
        self._settings = kerberos_settings(config)
        _check_installed()
        self._wakeup = wakeup
        self._attempts: dict[str, _Attempt] = {}

    def client(self, host: str) -> GssapiClient | None:
        attempt = self._attempts.get(host)
        if attempt is None or not attempt.is_of_use():
            self._attempts[host] = _Attempt(self._settings, host, self._wakeup)
            return None
        if attempt.outcome is None:
            return None
        del self._attempts[host]
        if isinstance(attempt.outcome, PeerError):
            raise attempt.outcome
        return attempt.outcome

    def close(self) -> None:
        """Forgets prepared logins."""
        self._attempts.clear()


def _check_installed() -> None:
    try:
        import gssapi
    except (ImportError, OSError) as error:  # OSError: the package is installed, but the library is not
        raise OptionError(
            "sasl.mechanism=GSSAPI requires python-gssapi and a Kerberos library. There are no wheels for Linux: "
            "apt-get install gcc python3-dev libkrb5-dev (dnf install gcc python3-devel krb5-devel), then "
            f"{install_extra('gssapi')}; or conda install -c conda-forge python-gssapi. "
            f"The import failed: {error}",
            option="sasl.mechanism",
        ) from error
    assert gssapi
