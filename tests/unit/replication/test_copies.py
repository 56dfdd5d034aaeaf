"""Sends that wait for replicas."""

from __future__ import annotations

from cometmq.replication.copies import Copies


class Sends:
    """Remembers how each send ended."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.ended: list[tuple[int, bool]] = []

    def wait(self, target: int, need: int = 2, deadline: float = 3.0) -> None:
        self.copies.wait(target, need, deadline, lambda enough: self.ended.append((target, enough)))


def test_one_acknowledgement_releases_all_before_it_in_order() -> None:
    copies = Copies()
    sends = Sends(copies)
    for target in (300, 100, 200, 400):
        sends.wait(target)
    copies.acknowledged("a", "10.0.0.1", 300)
    assert sends.ended == [(100, True), (200, True), (300, True)]
    copies.acknowledged("a", "10.0.0.1", 400)
    assert sends.ended[-1] == (400, True)
    assert copies.next_deadline is None


def test_the_master_is_the_only_copy_that_is_needed() -> None:
    sends = Sends(Copies())
    sends.wait(100, need=1)
    sends.wait(100, need=0)
    assert sends.ended == [(100, True)] * 2


def test_three_copies_need_two_replicas() -> None:
    copies = Copies()
    sends = Sends(copies)
    sends.wait(100, need=3)
    copies.acknowledged("a", "10.0.0.1", 150)
    assert sends.ended == []
    copies.acknowledged("b", "10.0.0.2", 99)
    assert sends.ended == []
    copies.acknowledged("b", "10.0.0.2", 100)
    assert sends.ended == [(100, True)]


def test_two_connections_of_one_host_are_one_replica_and_the_newest_counts() -> None:
    copies = Copies()
    sends = Sends(copies)
    copies.acknowledged("old", "10.0.0.1", 100)
    copies.acknowledged("new", "10.0.0.1", 50)
    sends.wait(100, need=3)
    sends.wait(90, need=2)
    assert sends.ended == []
    assert copies.count(50) == 2
    copies.acknowledged("old", "10.0.0.1", 1000)
    assert sends.ended == []


def test_a_lost_connection_no_longer_counts() -> None:
    copies = Copies()
    sends = Sends(copies)
    copies.acknowledged("a", "10.0.0.1", 100)
    copies.lost("a")
    copies.lost("b")
    sends.wait(50)
    assert sends.ended == []
    assert copies.count(0) == 1


def test_each_send_fails_at_its_deadline() -> None:
    copies = Copies()
    sends = Sends(copies)
    sends.wait(100, deadline=3.0)
    sends.wait(50, deadline=3.5)
    sends.wait(200, deadline=4.0)
    copies.expire(3.4)
    assert sends.ended == [(100, False)]
    copies.acknowledged("a", "10.0.0.1", 60)
    assert sends.ended == [(100, False), (50, True)]
    assert copies.next_deadline == 4.0
    copies.expire(4.0)
    assert sends.ended[-1] == (200, False)
    assert copies.next_deadline is None


def test_a_waiter_that_fails_does_not_cost_the_others_their_answers() -> None:
    copies = Copies()
    sends = Sends(copies)

    def fail(_: bool) -> None:
        raise RuntimeError("gone")

    copies.wait(10, 2, 1.0, fail)
    sends.wait(20)
    copies.acknowledged("a", "10.0.0.1", 20)
    assert sends.ended == [(20, True)]


def test_a_shorter_timeout_does_not_wait_for_a_longer_one_before_it() -> None:
    copies = Copies()
    sends = Sends(copies)
    sends.wait(100, deadline=10.0)
    sends.wait(200, deadline=1.0)
    assert copies.next_deadline == 1.0
    copies.expire(1.0)
    assert sends.ended == [(200, False)]
    assert copies.next_deadline == 10.0
