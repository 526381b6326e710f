"""What holds for every error of this package."""

from __future__ import annotations

import pickle

from spark_kafka_sink.errors import KafkaSinkError


def test_what_a_terminal_would_obey_is_written_out() -> None:
    """A broker's name of a config, for example, is any text."""
    error = KafkaSinkError("config co\x1b[2Jpact\x07 of topic '\u202ex': ü, 漢\nand a second line")

    assert error.message == r"config co\x1b[2Jpact\x07 of topic '\u202ex': ü, 漢" + "\nand a second line"
    assert str(pickle.loads(pickle.dumps(error))) == f"[KAFKA_SINK] {error.message}"
