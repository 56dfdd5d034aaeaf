"""Our members of a group and Java's come to the same allocation of queues."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cometmq.client.consumer.allocation import (
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfiguration,
    ByMachineRoom,
    ConsistentHash,
    NearestRoom,
)
from cometmq.model.queue import MessageQueue
from tests.compat.apache import run_java

NAMES = (
    "AVG",
    "AVG_BY_CIRCLE",
    "CONFIG",
    "MACHINE_ROOM",
    "CONSISTENT_HASH",
    "MACHINE_ROOM_NEARBY-AVG",
    "MACHINE_ROOM_NEARBY-CONSISTENT_HASH",
)
BROKERS = ("broker-a", "room1@a", "room1@b", "room2@a", "room3@a", "room1@", "room2@x@y", "room2@z@")
CASES_OF_EACH = 150


def strategy_named(name: str, queues: list[MessageQueue]) -> AllocationStrategy:
    strategies: dict[str, AllocationStrategy] = {
        "AVG": Averagely(),
        "AVG_BY_CIRCLE": AveragelyByCircle(),
        "CONFIG": ByConfiguration(queues[:1]),
        "MACHINE_ROOM": ByMachineRoom({"room1", "room2"}),
        "CONSISTENT_HASH": ConsistentHash(),
    }
    if name in strategies:
        return strategies[name]
    inner = strategies[name.partition("-")[2]]
    return NearestRoom(inner, lambda queue: room_of(queue.broker_name), room_of)


def room_of(name: str) -> str:
    return name.split("@")[0]


def some_case(rng: random.Random) -> tuple[str, list[str], list[MessageQueue]]:
    clients = {f"room{rng.randint(1, 4)}@10.0.0.{rng.randint(1, 30)}" for _ in range(rng.randint(1, 9))}
    queues = {
        MessageQueue("orders", rng.choice(BROKERS), rng.randint(0, 7)) for _ in range(rng.randint(1, 40))
    }
    own = "room1@stranger" if rng.random() < 0.05 else rng.choice(sorted(clients))
    return own, sorted(clients), sorted(queues)


def as_text(queues: list[MessageQueue]) -> str:
    return " ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues)


def test_every_strategy_gives_a_client_the_queues_that_java_gives_it(tmp_path: Path) -> None:
    """C2"""
    rng = random.Random(5)
    cases = [(name, *some_case(rng)) for name in NAMES for _ in range(CASES_OF_EACH)]
    lines = [f"{name}\t{own}\t{' '.join(clients)}\t{as_text(queues)}" for name, own, clients, queues in cases]
    (tmp_path / "cases").write_text("\n".join(lines) + "\n")

    expected = run_java("Strategies.java", str(tmp_path / "cases"), home=tmp_path / "home").splitlines()

    assert len(expected) == len(cases)
    for (name, own, clients, queues), wanted in zip(cases, expected, strict=True):
        chosen = strategy_named(name, queues).allocate("billing", own, queues, clients)
        if as_text(chosen) != wanted:
            pytest.fail(
                f"{name} for {own} of {clients} over {as_text(queues)}: {as_text(chosen)}, not {wanted}"
            )
