"""signed_query: against published vectors, botocore, Amazon's own signer for Python, and kafka-python."""

from __future__ import annotations

import json
from calendar import timegm
from time import strptime
from urllib.parse import parse_qsl, urlsplit

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.security.sasl.aws_msk_iam import AwsCredentials, encoded, first_message, region_of, signed_query
from tests.every import every

KEYS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefg+/=", min_size=1, max_size=40)
HOSTS = st.from_regex(r"b-[1-9]\.[a-z]{1,9}\.kafka\.us-west-2\.amazonaws\.com", fullmatch=True)

# kafka-python's test/net/sasl/test_msk.py: a host, keys and the time 1629321911.
VECTORS = {
    "": "0fa42ae3d5693777942a7a4028b564f0b372bafa2f71c1a19ad60680e6cb994b",
    "XXXXX": "b0619c50b7ecb4a7f6f92bd5f733770df5710e97b25146f97015c0b1db783b05",
}


@pytest.mark.parametrize("token", VECTORS)
def test_the_first_message_is_that_of_the_published_vectors(token: str) -> None:
    expected = {
        "version": "2020_10_22",
        "host": "localhost",
        "user-agent": "spark-kafka-sink",
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": "XXXXXXXXXXXXXXXXXXXX/20210818/us-east-1/kafka-cluster/aws4_request",
        "x-amz-date": "20210818T212511Z",
        "x-amz-signedheaders": "host",
        "x-amz-expires": "900",
        "x-amz-signature": VECTORS[token],
    }
    if token:
        expected["x-amz-security-token"] = token
    credentials = AwsCredentials("X" * 20, "X" * 40, token)
    assert json.loads(first_message(credentials, "localhost", "us-east-1", 1629321911.9)) == expected


@given(KEYS, KEYS, KEYS | st.just(""), HOSTS)
def test_the_signature_is_botocores(key_id: str, secret_key: str, token: str, host: str) -> None:
    request = AWSRequest(method="GET", url=f"https://{host}/", params={"Action": "kafka-cluster:Connect"})
    SigV4QueryAuth(Credentials(key_id, secret_key, token or None), "kafka-cluster", "us-west-2", expires=900).add_auth(request)
    signed_s = timegm(strptime(dict(parse_qsl(urlsplit(request.url).query))["X-Amz-Date"], "%Y%m%dT%H%M%SZ"))
    ours = signed_query(AwsCredentials(key_id, secret_key, token), host, "us-west-2", signed_s)
    assert f"https://{host}/?{encoded(ours)}" == request.url


# kafka-python reads its schemas, and the time, by calls that Python has deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@given(KEYS, KEYS, KEYS | st.just(""), HOSTS)
def test_the_first_message_is_kafka_pythons(key_id: str, secret_key: str, token: str, host: str) -> None:
    from kafka.net.sasl.msk import AwsMskIamClient

    theirs = json.loads(AwsMskIamClient(host, key_id, secret_key, "us-west-2", token).first_message())
    signed_s = timegm(strptime(theirs["x-amz-date"], "%Y%m%dT%H%M%SZ"))
    ours = json.loads(first_message(AwsCredentials(key_id, secret_key, token), host, "us-west-2", signed_s))
    assert ours | {"user-agent": ""} == theirs | {"user-agent": ""}


@every(
    "host, region",
    [
        ("b-3.unit-test.abcdef.kafka.us-west-2.amazonaws.com", "us-west-2"),
        ("boot-a1b2.c1.kafka-serverless.ap-southeast-3.amazonaws.com", "ap-southeast-3"),
        ("b-1.x.kafka.cn-northwest-1.amazonaws.com.cn", "cn-northwest-1"),
        ("b-1.x.kafka.us-gov-east-1.amazonaws.com", "us-gov-east-1"),
        ("B-1.X.KAFKA.EU-CENTRAL-1.AMAZONAWS.COM", "eu-central-1"),
        ("b-1.x.kafka.il-central-1.amazonaws.com", "il-central-1"),
        ("vpce-0f.kafka.us-east-1.vpce.amazonaws.com", "us-east-1"),
        ("my-kafka-1.internal", None),
        ("b-1-us-west-2.internal", None),
        ("localhost", None),
    ],
)
def test_a_host_names_its_region(host: str, region: str | None) -> None:
    assert region_of(host) == region


def test_credentials_do_not_show_their_secrets() -> None:
    assert repr(AwsCredentials("AKIA1", "S3CRET", "T0KEN")) == "AwsCredentials(AKIA1)"
