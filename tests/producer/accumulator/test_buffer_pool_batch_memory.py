"""Where a batch's records lie: whatever was copied and shared comes out in order, and goes back to the pool once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.accumulator.buffer_pool import BatchMemory, BufferPool, SharedChunks
from tests.examples import examples

CHUNK = 16
PIECES = st.lists(st.tuples(st.booleans(), st.binary(max_size=50)), max_size=20)


def chunks_for(size: int) -> int:
    return -(-size // CHUNK)


@settings(max_examples=examples(100), deadline=None)
@given(PIECES)
def test_copied_and_shared_pieces_come_out_in_order_and_their_memory_goes_back(pieces: list[tuple[bool, bytes]]) -> None:
    pool = BufferPool(200 * CHUNK, CHUNK)
    memory = BatchMemory()
    for shares, data in pieces:
        if shares:
            block = SharedChunks()
            memory.share(memoryview(data), block)
            block.lend(pool.allocate(chunks_for(len(data)), 0))
        else:
            fresh = pool.allocate(chunks_for(max(len(data) - memory.room, 0)), 0)
            memory.copy(memoryview(data), fresh)
            assert fresh == []
    assert b"".join(memory.pieces()) == b"".join(data for _, data in pieces)
    memory.give_back(pool)
    assert pool.available == pool.total
    memory.give_back(pool)
    assert memory.pieces() == []
