"""Allocation strategies; that they agree with Java's is shown in `tests/compat/client/test_strategies.py`."""

from __future__ import annotations

import itertools

import pytest

from cometmq.client.consumer.allocation import (
    AllocationError,
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfiguration,
    ByMachineRoom,
    ConsistentHash,
    NearestRoom,
)
from cometmq.model.queue import MessageQueue


def queues(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("orders", broker, number) for number in range(count)]


def clients(count: int) -> list[str]:
    return sorted(f"10.0.0.{number}@1" for number in range(count))


@pytest.mark.parametrize("strategy", [Averagely(), AveragelyByCircle(), ConsistentHash()])
def test_every_queue_goes_to_exactly_one_member(strategy: AllocationStrategy) -> None:
    """C2."""
    for count, members in itertools.product((1, 2, 7, 16), (1, 2, 3, 9)):
        everything = queues(count)
        shares = [strategy.allocate("g", each, everything, clients(members)) for each in clients(members)]
        assert sorted(itertools.chain(*shares)) == everything


@pytest.mark.parametrize("strategy", [Averagely(), AveragelyByCircle()])
def test_shares_differ_by_one_at_most_and_spare_members_get_nothing(strategy: AllocationStrategy) -> None:
    """C2."""
    sizes = [len(strategy.allocate("g", each, queues(7), clients(3))) for each in clients(3)]
    assert sorted(sizes) == [2, 2, 3]
    sizes = [len(strategy.allocate("g", each, queues(2), clients(5))) for each in clients(5)]
    assert sorted(sizes) == [0, 0, 0, 1, 1]


def test_neighbours_stay_together_or_are_dealt_out() -> None:
    """C2."""
    first, second = clients(2)
    numbers = [each.queue_id for each in Averagely().allocate("g", first, queues(5), [first, second])]
    assert numbers == [0, 1, 2]
    numbers = [
        each.queue_id for each in AveragelyByCircle().allocate("g", second, queues(5), [first, second])
    ]
    assert numbers == [1, 3]


def test_configured_queues_and_rooms_are_respected() -> None:
    """C2."""
    chosen = queues(3)[1:2]
    assert ByConfiguration(chosen).allocate("g", "any", queues(3), clients(2)) == chosen
    near, far = queues(4, "room1@a"), queues(4, "room2@b")
    (only,) = clients(1)
    assert ByMachineRoom({"room1"}).allocate("g", only, near + far, [only]) == near


def test_the_nearest_room_is_served_first_and_an_empty_room_by_all() -> None:
    """C2."""

    def room(name: str) -> str:
        return name.split("@")[0]

    strategy = NearestRoom(Averagely(), lambda queue: room(queue.broker_name), room)
    everything = queues(2, "room1@a") + queues(2, "room2@b") + queues(2, "room3@c")
    members = ["room1@x", "room2@y"]
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    shares = {each: strategy.allocate("g", each, everything, members) for each in members}
    assert [str(each) for each in shares["room1@x"]] == [
        "orders@room1@a:0",
        "orders@room1@a:1",
        "orders@room3@c:0",
    ]
    assert sorted(itertools.chain(*shares.values())) == everything
    with pytest.raises(AllocationError, match="room of"):
        NearestRoom(Averagely(), lambda queue: "", room).allocate("g", members[0], everything, members)


def test_few_queues_move_when_a_member_leaves_a_hash_ring() -> None:
    """C2."""
    strategy, everything, members = ConsistentHash(), queues(64), clients(4)
    leaver, stayers = members[0], members[1:]
    for stayer in stayers:
        before = set(strategy.allocate("g", stayer, everything, members))
        assert before <= set(strategy.allocate("g", stayer, everything, stayers))
    assert strategy.allocate("g", leaver, everything, stayers) == []


def test_nothing_to_share_is_a_mistake_and_a_stranger_gets_nothing() -> None:
    """C2."""
    with pytest.raises(AllocationError, match="no queues"):
        Averagely().allocate("g", "a", [], ["a"])
    with pytest.raises(AllocationError, match="no client ids"):
        Averagely().allocate("g", "a", queues(1), [])
    with pytest.raises(AllocationError, match="client id is empty"):
        Averagely().allocate("g", "", queues(1), ["a"])
    with pytest.raises(AllocationError, match="virtual nodes"):
        ConsistentHash(-1)
    assert Averagely().allocate("g", "stranger", queues(1), ["a"]) == []
