"""Which partition of an internal topic a key belongs to, and so who coordinates it (`GroupMetadataManager.partitionFor`)."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """`String.hashCode` of Java, over UTF-16 code units, as a signed 32-bit number."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


def partition_for(key: str, partitions: int) -> int:
    """Kafka's `Utils.abs`: the sign bit masked out, so -2^31 is 0."""
    code = java_hash(key)
    return (0 if code == -(1 << 31) else abs(code)) % partitions
