"""Whole connections: changed requests to the embedded broker, and changed answers to the clients."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.hostile_frames import MUTATION_SIZE, TOPIC, mutated, mutations, templates
from tests.broker.network.client import Client
from tests.broker.test_fuzzer import break_off, decoded, handle, pipeline
from tests.broker.unharmed import MEGABYTE, memory_stays, nothing_escapes, threads_stay
from tests.fuzz.hostile_answers import asked, nothing_raw, produced, rig

_BURST: Final = 100
_TO_HANDLERS: Final = 4
"""Of five bursts so many go to the handlers, which takes a tenth of the time of a socket."""
_PER_BROKER: Final = 5_000
"""Frames after which the broker is a new one: it is legally made to keep topics, groups and records."""


def requests_to_broker(frames: int, seed: int) -> str:
    """Sends changed requests to the embedded broker's handlers, and over sockets. Returns what became of them."""
    rng = random.Random(seed)
    read = 0
    for start in range(0, frames, _PER_BROKER):
        with EmbeddedBroker(config=BrokerConfig(num_network_threads=2)) as broker:
            broker.create_topic(TOPIC, partitions=2)
            with nothing_escapes(), threads_stay(), memory_stays(200 * MEGABYTE):
                read += _to_one_broker(broker, min(_PER_BROKER, frames - start), rng)
    return f"{read:,} of {frames:,} requests were read"


def _to_one_broker(broker: EmbeddedBroker, frames: int, rng: random.Random) -> int:
    server = broker.server(1)
    requests = templates(server.apis.served)
    read = 0
    with Client(server.port) as bystander:
        expected = bystander.api_versions()
        for burst in range(frames // _BURST):
            changed = [mutated(requests, one) for one in mutations(rng.randbytes(_BURST * MUTATION_SIZE))]
            served = [(frame, found) for frame in changed if (found := decoded(frame, server.apis)) is not None]
            read += len(served)
            if burst % (_TO_HANDLERS + 1):
                for _, found in served:
                    handle(server.apis, found)
            else:
                pipeline(server.port, served)
                break_off(server.port, [frame for frame in changed if decoded(frame, server.apis) is None])
                assert bystander.api_versions() == expected
    return read


def answers_to_clients(frames: int, seed: int) -> str:
    """Lets a broker lie to producers and to clients of the cluster. Returns what became of their calls."""
    frames //= 20  # calls wait for each other: 30 answers a second, where other targets read thousands
    rng = random.Random(seed)
    answers = changed = 0
    outcomes: dict[str, int] = {}
    while answers < frames:
        with nothing_raw(), memory_stays(100 * MEGABYTE), rig(rng.randrange(1 << 30)) as made:
            while made.proxy.answers < min(_PER_BROKER, frames - answers):
                rng.choice((produced, asked))(made, rng)
            answers += made.proxy.answers
            changed += made.proxy.changed
            for outcome, count in made.outcomes.items():
                outcomes[outcome] = outcomes.get(outcome, 0) + count
        print(f"  {answers:,} answers, {changed:,} changed", flush=True)
    most = sorted(outcomes.items(), key=lambda one: -one[1])
    return f"{changed:,} of {answers:,} answers were changed; calls: " + ", ".join(f"{count:,} {name}" for name, count in most)


CONNECTIONS: Final[Mapping[str, Callable[[int, int], str]]] = {
    "requests_to_broker": requests_to_broker,
    "answers_to_clients": answers_to_clients,
}
"""By name: takes the number of frames and a seed, and returns what became of them."""
