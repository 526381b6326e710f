"""AWS_MSK_IAM: the login, where its credentials come from, and what goes wrong. Without a network."""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.sasl.aws_msk_iam import AwsCredentials, AwsMskIamClient, AwsMskIamMechanism
from tests.every import every
from tests.security.sasl.aws_environment import HOST, clean_environment, local_sts, set_key
from tests.security.sasl.test_fuzzed_handshakes import fuzzed
from tests.waiting import DEADLINE_S

LINE = "software.amazon.msk.auth.iam.IAMLoginModule required"
ACCEPTED = b'{"version":"2020_10_22","request-id":"8f1c"}'
SECRETS = ("S3CRET", "T0KEN", "ROLES3CRET", "ROLET0KEN")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path)


def mechanism(options: str = "", wakeup: threading.Event | None = None) -> AwsMskIamMechanism:
    config = SecurityConfig(
        security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM", sasl_jaas_config=Secret(f"{LINE} {options};")
    )
    return AwsMskIamMechanism(config, (wakeup or threading.Event()).set)


def client(options: str = "", host: str = HOST) -> AwsMskIamClient:
    """A client of a mechanism's, which has been waited for as a login waits."""
    woken = threading.Event()
    with closing(mechanism(options, woken)) as made:
        found = made.client(host)
        if found is None:
            assert woken.wait(DEADLINE_S), "nobody was woken"
            found = made.client(host)
        assert found is not None
        return found


def message(of: AwsMskIamClient) -> dict[str, str]:
    found: dict[str, str] = json.loads(of.evaluate(None) or b"")
    return found


# The login


def test_a_login_is_complete_when_the_broker_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    set_key(monkeypatch, token="T0KEN")
    login = client()
    said = message(login)
    assert said["host"] == HOST
    assert said["x-amz-credential"].startswith("AKIA1/")
    assert said["x-amz-credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert said["x-amz-security-token"] == "T0KEN"
    assert not login.is_complete()
    assert login.evaluate(ACCEPTED) is None
    assert login.is_complete()
    assert login.principal() == "AKIA1"


def test_the_client_is_never_kept_waiting_for_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_key(monkeypatch)
    woken = threading.Event()
    with closing(mechanism("", woken)) as made:
        assert made.client(HOST) is None
        assert woken.wait(DEADLINE_S)
        assert made.client(HOST) is not None
        assert made.client(HOST) is not None  # the same credentials sign each login


@every(
    "answer, text",
    [
        (b"", "an empty response"),
        (b"\x03\x04", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "has another version than 2020_10_22"),
        (b'{"version":"INVALID","request-id":"x"}', "has another version than 2020_10_22"),
        (b'{"version":"2020_10_22"}', "has no request-id"),
        (b'{"version":"2020_10_22","request-id":null}', "has no request-id"),
    ],
)
def test_any_other_answer_is_an_error(answer: bytes, text: str) -> None:
    login = AwsMskIamClient(AwsCredentials("AKIA1", "S3CRET"), HOST, "eu-west-1")
    login.evaluate(None)
    with pytest.raises(AuthenticationError, match=text) as error:
        login.evaluate(answer)
    assert not login.is_complete()
    assert len(str(error.value)) < 500
    with pytest.raises(AuthenticationError, match="a message that AWS_MSK_IAM does not allow"):
        login.evaluate(ACCEPTED)


def test_a_broker_that_speaks_first_is_a_wrong_one() -> None:
    login = AwsMskIamClient(AwsCredentials("AKIA1", "S3CRET"), HOST, "eu-west-1")
    with pytest.raises(AuthenticationError, match="a message that AWS_MSK_IAM does not allow"):
        login.evaluate(b"\x02\x03")


def test_fuzzed_answers_are_accepted_for_what_they_say_or_refused() -> None:
    rng, accepted = random.Random(), 0
    for _ in range(3000):
        login, answer = AwsMskIamClient(AwsCredentials("AKIA1", "S3CRET"), HOST, "eu-west-1"), fuzzed(rng, ACCEPTED)
        login.evaluate(None)
        try:
            login.evaluate(answer)
        except AuthenticationError as error:
            said = error.message
            assert said.isprintable()
            assert len(said) < 600
            assert not login.is_complete()
        else:
            accepted += 1
            found = json.loads(answer)
            assert (found["version"], type(found["request-id"])) == ("2020_10_22", str)
    assert 0 < accepted < 3000


# Credentials


def test_a_profile_is_used_where_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_key(monkeypatch)
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKIA9\naws_secret_access_key = S3CRET\n")
    assert client('awsProfileName="work"').principal() == "AKIA9"


def test_a_profile_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    set_key(monkeypatch)
    with pytest.raises(AuthenticationError, match=r"of the profile work: The config profile \(work\) could not be found"):
        client('awsProfileName="work"')


def test_a_role_is_assumed_with_the_credentials_that_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    set_key(monkeypatch)
    with local_sts(monkeypatch) as asked:
        login = client('awsRoleArn="arn:aws:iam::1:role/sink" awsRoleSessionName="me" awsRoleExternalId="ext"')
        assert message(login)["x-amz-security-token"] == "ROLET0KEN"
    assert login.principal() == "ASIA2"
    (request,) = asked
    wanted = {"RoleArn": "arn:aws:iam::1:role/sink", "RoleSessionName": "me", "ExternalId": "ext", "key_id": "AKIA1"}
    assert wanted.items() <= request.items()


def test_a_role_is_assumed_with_the_keys_of_the_login_line(monkeypatch: pytest.MonkeyPatch) -> None:
    set_key(monkeypatch)
    with local_sts(monkeypatch) as asked:
        client('awsRoleArn="arn:aws:iam::1:role/sink" awsRoleAccessKeyId="AKIA7" awsRoleSecretAccessKey="S3CRET"')
    assert [request["key_id"] for request in asked] == ["AKIA7"]


def test_a_role_that_may_not_be_assumed_is_an_error_without_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    set_key(monkeypatch)
    with local_sts(monkeypatch, denies=True), pytest.raises(AuthenticationError, match="AccessDenied") as error:
        client('awsRoleArn="arn:aws:iam::1:role/sink"')
    assert "could not get AWS credentials of the role arn:aws:iam::1:role/sink" in error.value.message


def test_no_credentials_say_where_to_put_them() -> None:
    with pytest.raises(AuthenticationError, match="found no AWS credentials: set AWS_ACCESS_KEY_ID"):
        client()


def test_a_host_without_a_region_says_where_to_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    set_key(monkeypatch)
    with pytest.raises(AuthenticationError, match=r"the AWS region is unknown, because kafka\.internal does not name it"):
        client(host="kafka.internal")


def test_the_region_of_the_environment_is_for_hosts_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_key(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert "/eu-north-1/" in message(client("awsDebugCreds=true", "kafka.internal"))["x-amz-credential"]


@every(
    "options, text",
    [
        ('awsProfileNam="x"', "awsProfileNam is not supported, must be one of awsProfileName, awsRoleArn"),
        ('awsProfileName="x" awsRoleArn="y"', "cannot be combined"),
        ('awsRoleSessionName="x"', "but awsRoleArn is not"),
        ('awsRoleArn="x" awsRoleAccessKeyId="y"', "must be set together"),
        ('awsMskRegionProvider="com.example.Regions"', "set the environment variable AWS_REGION instead"),
    ],
)
def test_a_login_line_that_cannot_be_followed_is_an_error_at_the_start(options: str, text: str) -> None:
    with pytest.raises(OptionError, match=text) as error:
        mechanism(options)
    assert error.value.facts["option"] == "sasl.jaas.config"


def test_a_missing_botocore_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(OptionError, match=r"pip install 'spark-kafka-sink\[aws\]'"):
        mechanism()


def test_nothing_logs_a_secret(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    set_key(monkeypatch, token="T0KEN")
    with caplog.at_level(logging.DEBUG), local_sts(monkeypatch):
        login = client('awsRoleArn="arn:aws:iam::1:role/sink"')
        assert "ROLET0KEN" in message(login).values()
        logging.getLogger("botocore.parsers").debug("of another call of this program's")
    assert [secret for secret in SECRETS if secret in caplog.text or secret in repr(vars(login))] == []
    assert "of another call of this program's" in caplog.text
