"""A real Kafka as companies run it: TLS, mTLS, every SASL mechanism, ACLs and delegation tokens, each on a listener."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography import x509

from tests.kafka import java
from tests.kafka.acls import add_acls, binding, remove_acls
from tests.kafka.class_archive import QUICK_START
from tests.kafka.cluster import KafkaCluster
from tests.kafka.kafka import REQUEST_TIMEOUT_S
from tests.kafka_security import oidc_server
from tests.kafka_security.oidc_server import OidcServer
from tests.security.certificates import LOCAL, Authority, Identity
from tests.security.kdc import REALM, Kdc
from tests.waiting import DEADLINE_S

LISTENERS: Mapping[str, str] = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "CHANGING": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "REAUTH": "SASL_SSL",
}
"""name -> security protocol. MTLS asks clients for a certificate. The certificate of EXPIRED has expired, that of ELSEWHERE is
for another host, that of CHANGING is for tests to replace. SASL_PLAINTEXT does not offer OAUTHBEARER. REAUTH ends sessions that
do not log in again after REAUTH_MS."""

REAUTH_MS = 2_000

USER, PASSWORD = "sink", "word-of-sink"
"""Logs in with PLAIN, SCRAM and Kerberos, and may do everything."""
LIMITED = "limited"
"""Logs in with PLAIN and SCRAM and the same password, and may do what `grant` allows."""
EVENT_HUBS = "$ConnectionString"
"""Logs in with PLAIN and PASSWORD, as all clients of Event Hubs do, and may do everything."""
CERTIFICATE_NAME = "client-certificate"
"""The common name of a client's certificate that may do everything."""
OIDC_CLIENT = "oidc-client"

_SUPER_USERS = ("ANONYMOUS", USER, EVENT_HUBS, CERTIFICATE_NAME, OIDC_CLIENT, oidc_server.SUBJECT_OF_SHORT)
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SCRAM = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
_PLUGINS = "org.apache.kafka.common.security"
_JAAS = {
    "PLAIN": " ".join(
        [f"{_PLUGINS}.plain.PlainLoginModule required", *(f'user_{name}="{PASSWORD}"' for name in (USER, LIMITED, EVENT_HUBS))]
    )
    + ";",
    "SCRAM-SHA-256": f"{_PLUGINS}.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": f"{_PLUGINS}.scram.ScramLoginModule required;",
    "OAUTHBEARER": f"{_PLUGINS}.oauthbearer.OAuthBearerLoginModule required;",
}


def pem_of(identity: Identity) -> str:
    """Returns key and certificate as the PEM file that Kafka's ssl.keystore.location names."""
    return identity.key_pem + identity.chain_pem


class SecureKafka(KafkaCluster):
    """One node; `listener("SASL_SSL")` is an address. The harness uses the PLAINTEXT listener, where everybody may do everything.

    Not thread-safe, as KafkaCluster.
    """

    def __init__(self, folder: Path, oidc: OidcServer, kdc: Kdc | None) -> None:
        """folder: takes certificates and keys. oidc: may still be starting. kdc: None leaves GSSAPI out."""
        self.oidc = oidc
        self.kdc = kdc
        self.folder = folder
        self._token: tuple[str, str] | None = None
        self.authority = Authority.root("sink-test-ca")
        self.other_authority = Authority.root("unknown-ca")
        self.client = self.authority.issue(CERTIFICATE_NAME, client=True)
        self.ca = self._write("ca.pem", self.authority.chain_pem)
        self.other_ca = self._write("other-ca.pem", self.other_authority.chain_pem)
        here = self.authority.issue("broker", LOCAL)
        stores = {
            "expired": self.authority.issue("broker", LOCAL, begins_in=-10, ends_in=-1),
            "elsewhere": self.authority.issue("broker", ["kafka.example.test"]),
        }
        settings = self._settings({name: stores.get(name, here) for name in map(str.lower, LISTENERS)})
        urls = ",".join(oidc.keys_url(issuer) for issuer in (oidc_server.LONG, oidc_server.SHORT))
        options = [*QUICK_START, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"]
        if kdc is not None:
            options.append(f"-Djava.security.krb5.conf={kdc.krb5_conf}")
        super().__init__(1, settings, listeners=LISTENERS, java_options=options)
        try:
            self._add_scram_users()
        except BaseException:
            self.stop()
            raise

    def _start_all(self, deadline_s: float) -> None:
        self.oidc.wait()  # a broker asks for the keys while it starts
        super()._start_all(deadline_s)

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _settings(self, key_stores: Mapping[str, Identity]) -> dict[str, str]:
        mechanisms = [*_MECHANISMS, *(["GSSAPI"] if self.kdc is not None else [])]
        settings = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{name}" for name in _SUPER_USERS),
            "delegation.token.secret.key": "delegation-secret",
            "sasl.enabled.mechanisms": ",".join(mechanisms),
            "sasl.kerberos.service.name": "kafka",
            "sasl.oauthbearer.jwks.endpoint.url": self.oidc.keys_url(),
            "sasl.oauthbearer.expected.audience": oidc_server.AUDIENCE,
            # The default, DefaultJwtValidator, checks neither signature nor audience in 4.1.0: there it is a ClientJwtValidator.
            "sasl.oauthbearer.jwt.validator.class": f"{_PLUGINS}.oauthbearer.BrokerJwtValidator",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": ",".join(set(mechanisms) - {"OAUTHBEARER"}),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "num.network.threads": "1",  # of each listener
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.truststore.type": "PEM",
            "listener.name.mtls.ssl.truststore.location": str(self.ca),
            "listener.name.reauth.connections.max.reauth.ms": str(REAUTH_MS),
            "listener.name.reauth.sasl.oauthbearer.jwks.endpoint.url": self.oidc.keys_url(oidc_server.SHORT),
            "listener.name.reauth.sasl.oauthbearer.clock.skew.seconds": "0",
        }
        for name, protocol in LISTENERS.items():
            prefix = f"listener.name.{name.lower()}."
            if protocol in ("SSL", "SASL_SSL"):
                store = self._write(f"{name.lower()}.pem", pem_of(key_stores[name.lower()]))
                settings |= {f"{prefix}ssl.keystore.type": "PEM", f"{prefix}ssl.keystore.location": str(store)}
            if protocol.startswith("SASL"):
                settings |= {f"{prefix}{key}": value for key, value in self._sasl(mechanisms).items()}
        return settings

    def _sasl(self, mechanisms: list[str]) -> dict[str, str]:
        jaas = dict(_JAAS)
        if self.kdc is not None:
            self.kdc.add("kafka/localhost")
            keys = self.kdc.keytab("kafka/localhost")
            jaas["GSSAPI"] = (
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
                f'keyTab="{keys}" principal="kafka/localhost@{REALM}";'
            )
        settings = {f"{mechanism.lower()}.sasl.jaas.config": jaas[mechanism] for mechanism in mechanisms}
        handler = f"{_PLUGINS}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        return settings | {"oauthbearer.sasl.server.callback.handler.class": handler}

    def _add_scram_users(self) -> None:
        users = {USER: PASSWORD, LIMITED: PASSWORD}
        for mechanism in _SCRAM:
            info = ScramCredentialInfo(mechanism, 4096)
            changes: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(user, info, password.encode()) for user, password in users.items()
            ]
            for done in self.admin.alter_user_scram_credentials(changes, request_timeout=REQUEST_TIMEOUT_S).values():
                done.result()
        self.wait_for(lambda: self._has_scram(list(users)), "SCRAM users known", DEADLINE_S)

    def _has_scram(self, users: list[str]) -> bool:
        described = self.admin.describe_user_scram_credentials(users, request_timeout=REQUEST_TIMEOUT_S)
        assert isinstance(described, dict)  # for a list of users; for None it is one future
        return all(len(each.result().scram_credential_infos) == len(_SCRAM) for each in described.values())

    def port(self, listener: str) -> int:
        return int(self.listener(listener).rpartition(":")[2])

    def grant(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> None:
        """Allows LIMITED operations on a resource; returns when it is in force. All is taken back after each test."""
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        principal = f"User:{LIMITED}"
        bindings: list[AclBinding] = [binding(kind, name, each, principal=principal, pattern=pattern) for each in operations]
        add_acls(self, bindings)

    def revoke_all(self) -> None:
        remove_acls(self)

    def replace_certificate(self, identity: Identity) -> None:
        """Gives CHANGING another certificate, as an operator does: writes the file again, then alters the config."""
        store = self._write("changing.pem", pem_of(identity))
        name = "listener.name.changing.ssl.keystore.location"
        entry = ConfigEntry(name, str(store), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values():
            done.result()
        # The broker takes it a moment after the controller has confirmed it.
        self.wait_for(lambda: self._shown("CHANGING") == identity.certificate, "the new certificate shown", DEADLINE_S)

    def _shown(self, listener: str) -> x509.Certificate:
        """Returns the certificate that a listener shows to clients."""
        shown = ssl.get_server_certificate(("localhost", self.port(listener)), timeout=5)
        return x509.load_pem_x509_certificate(shown.encode())

    def delegation_token(self) -> tuple[str, str]:
        """Returns the id and the HMAC of a delegation token of USER: user and password of SCRAM. All tests share it."""
        if self._token is None:
            row = self._token_tool("--create", "--max-life-time-period", "-1")
            # The broker has it in its cache a moment after the controller has confirmed it.
            self.wait_for(
                lambda: bool(self._token_tool("--describe", "--owner-principal", f"User:{USER}")), "a delegation token known", 30
            )
            self._token = row[0], row[1]
        return self._token

    def _token_tool(self, *arguments: str) -> list[str]:
        """Returns the columns that Kafka's tool prints of USER's token, none if there is none."""
        login = self._write("user.properties", self.java_login())
        servers = "--bootstrap-server", self.listener("SASL_PLAINTEXT"), "--command-config", str(login)
        printed = java.run("org.apache.kafka.tools.DelegationTokenCommand", *servers, *arguments, timeout_s=60)
        return next((line.split() for line in printed.splitlines() if f"User:{USER} " in line), [])

    def java_login(self) -> str:
        """Returns the properties of a Java client of SASL_PLAINTEXT."""
        jaas = f'{_PLUGINS}.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
        return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={jaas}\n"
