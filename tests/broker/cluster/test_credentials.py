"""What a broker keeps of passwords."""

from __future__ import annotations

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.credentials import Credentials, scram_credential
from tests.every import every

USERS = {"alice": "s3cret-word", "bob": "other-word"}


@every(
    "user, password, right",
    [
        ("alice", "s3cret-word", True),
        ("alice", "other-word", False),
        ("alice", "", False),
        ("carol", "", False),
        ("carol", "s3cret-word", False),
        ("", "", False),
    ],
)
def test_a_password_is_its_users_own(user: str, password: str, right: bool) -> None:
    assert Credentials(USERS).is_password(user, password) is right


def test_each_user_and_mechanism_has_a_salt_of_its_own() -> None:
    known = Credentials({"alice": "same", "bob": "same"})
    every = [known.scram(mechanism, user) for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512") for user in ("alice", "bob")]

    assert len({credential.salt for credential in every if credential is not None}) == 4
    assert all(credential is not None and credential.iterations >= 4096 for credential in every)


def test_nothing_of_it_shows() -> None:
    shown = (
        repr(Credentials(USERS)) + repr(scram_credential("sha256", "s3cret-word", b"salt")) + repr(BrokerConfig(sasl_users=USERS))
    )

    assert "word" not in shown
    assert "alice" not in shown
    assert "salt" not in shown.replace("salt=", "")
