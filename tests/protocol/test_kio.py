"""kio reads what we write and writes the same bytes, for every API and version we speak."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS
from tests.every import every
from tests.protocol.kio_witness import kio_read, kio_write
from tests.protocol.messages_strategy import SPOKEN, bodies
from tests.protocol.whole import decode, encode
from tests.tiers import HISTORIES_PROFILE

pytestmark = pytest.mark.slow


# The version of Kafka 4.4 is newer than kio 0.6.5.
KNOWN_TO_KIO = [each for each in SPOKEN if (each[0], each[1]) != (API_VERSIONS, 5)]


def assert_kio_agrees(api: AnyApi, version: int, kind: str, data: st.DataObject) -> None:
    body, correlation_id = data.draw(bodies(api, version, kind)), data.draw(st.integers(-(2**31), 2**31 - 1))
    client_id = data.draw(st.none() | st.text(max_size=20))

    written = encode(api, version, kind, correlation_id, client_id, body)
    header, read = kio_read(api, version, kind, written)

    assert header.correlation_id == correlation_id
    assert kind == "response" or header.client_id == client_id
    assert read == body
    assert kio_write(api, version, kind, correlation_id, client_id, body) == written
    assert decode(api, version, kind, written) == (correlation_id, body)


@settings(settings.get_profile(HISTORIES_PROFILE))
@given(st.sampled_from(KNOWN_TO_KIO), st.data())
def test_kio_agrees_on_any(spoken: tuple[AnyApi, int, str], data: st.DataObject) -> None:
    assert_kio_agrees(*spoken, data)


@pytest.mark.whole("test_golden.py compares each version with Java's bytes, and the test above random ones with kio")
@pytest.mark.timeout(600)
@every("api, version, kind", KNOWN_TO_KIO)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_kio_agrees_on_each(api: AnyApi, version: int, kind: str, data: st.DataObject) -> None:
    assert_kio_agrees(api, version, kind, data)
