"""kio reads what we write and writes the same bytes, for every API and version we speak."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.protocol.api import AnyApi
from tests.protocol.kio_witness import kio_read, kio_write
from tests.protocol.messages_strategy import SPOKEN, bodies, spoken_id
from tests.protocol.whole import decode, encode

pytestmark = pytest.mark.slow

correlation_ids = st.integers(-(2**31), 2**31 - 1)
client_ids = st.none() | st.text(max_size=20)


@pytest.mark.parametrize(("api", "version", "kind"), SPOKEN, ids=spoken_id)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_kio_reads_what_we_write(api: AnyApi, version: int, kind: str, data: st.DataObject) -> None:
    body, correlation_id = data.draw(bodies(api, version, kind)), data.draw(correlation_ids)
    client_id = data.draw(client_ids)

    header, read = kio_read(api, version, kind, encode(api, version, kind, correlation_id, client_id, body))

    assert header.correlation_id == correlation_id
    assert kind == "response" or header.client_id == client_id
    assert read == body


@pytest.mark.parametrize(("api", "version", "kind"), SPOKEN, ids=spoken_id)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_we_read_what_kio_writes(api: AnyApi, version: int, kind: str, data: st.DataObject) -> None:
    body, correlation_id = data.draw(bodies(api, version, kind)), data.draw(correlation_ids)
    client_id = data.draw(client_ids)

    written = kio_write(api, version, kind, correlation_id, client_id, body)

    assert decode(api, version, kind, written) == (correlation_id, body)
    assert encode(api, version, kind, correlation_id, client_id, body) == written
