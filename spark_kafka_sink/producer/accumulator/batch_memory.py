"""Where a batch's records lie: copied into chunks of its own, or in parts of encoded blocks that it shares with other batches."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool, Chunk, SharedChunks


class BatchMemory:
    """Owned by whoever owns the batch. Nothing of it may be read after `give_back`."""

    __slots__ = ("_chunks", "_pieces", "_room", "_shared")

    def __init__(self, chunks: Sequence[Chunk] = ()) -> None:
        """`chunks`: leave for memory that is not kept track of here."""
        self._chunks = list(chunks)
        self._shared: list[SharedChunks] = []
        self._pieces: list[memoryview] = []
        self._room = 0

    @property
    def room(self) -> int:
        """Free bytes in the last chunk."""
        return self._room

    def copy(self, source: memoryview, fresh: list[Chunk]) -> None:
        """Copy `source` to the end, taking chunks from `fresh` as they are needed; their memory must have been made."""
        length = len(source)
        room = self._room
        if length < room:  # the common case with many partitions: one copy
            self._pieces[-1][-room : length - room] = source
            self._room = room - length
            return
        if room:
            self._pieces[-1][-room:] = source[:room]
            self._room = 0
        position = room
        while position < length:
            assert fresh, "planned with too small a bound of the records' sizes"
            chunk = fresh.pop()
            memory = chunk.memory
            taken = min(len(memory), length - position)
            memory[:taken] = source[position : position + taken]
            self._chunks.append(chunk)
            self._pieces.append(memory)
            self._room = len(memory) - taken
            position += taken

    def share(self, piece: memoryview, block: SharedChunks) -> None:
        """Keep a part of an encoded block as it is; `block` stands for the whole of it in the pool."""
        if self._room:  # what is free in the last chunk stays so
            self._pieces[-1] = self._pieces[-1][: -self._room]
            self._room = 0
        self._pieces.append(piece)
        self._shared.append(block)
        block.users += 1

    def pieces(self) -> list[memoryview]:
        """The records as they lie, in order."""
        if not self._room:
            return list(self._pieces)
        return [*self._pieces[:-1], self._pieces[-1][: -self._room]]

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes only: what is behind them was not finished. The memory goes with the rest."""
        pieces = self.pieces()
        excess = sum(map(len, pieces)) - size
        while excess > 0:
            piece = pieces.pop()
            excess -= len(piece)
            if excess < 0:
                pieces.append(piece[:-excess])
        self._pieces, self._room = pieces, 0

    def give_back(self, pool: BufferPool) -> None:
        """Let all of it go. Once more does nothing."""
        chunks, self._chunks = self._chunks, []
        shared, self._shared = self._shared, []
        self._pieces = []
        self._room = 0
        pool.deallocate(chunks)
        for block in shared:
            pool.leave(block)
