"""Requests that wait on the broker: woken, ended by the clock, dropped with their connection (B8, B12)."""

from __future__ import annotations

import asyncio
from typing import cast

from cometmq.broker.long_polling import MAX_HOLD_MS, TICK_MS, LongPolling
from cometmq.model.errors import CometError
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import DEFERRED, Answer, Result
from cometmq.testing.clock import VirtualClock
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command


class Peer:
    """A connection that notes its answers."""

    remote_address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.answers: list[tuple[int, int]] = []

    def answer(self, request: Command, answer: Answer) -> None:
        self.answers.append((request.opaque, int(answer.code)))


class Waiting:
    """A request with a number."""

    def __init__(self, number: int, peer: Peer) -> None:
        self.number = number
        self.request = Command(
            code=11,
            language="PYTHON",
            version=0,
            opaque=number,
            flag=0,
            remark=None,
            serialize_type=0,
            body=b"body",
        )
        self.connection = cast(Connection, peer)
        self.end_tick = 0


class Polling:
    """The engine with a clock of its own, and what it ran and released."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.ran: list[int] = []
        self.released: list[int] = []
        self.result: Result | CometError = Answer()
        self.engine: LongPolling[Waiting] = LongPolling(
            self.clock, self._run, lambda held: self.released.append(held.number)
        )

    def _run(self, held: Waiting) -> Result:
        self.ran.append(held.number)
        if isinstance(self.result, CometError):
            raise self.result
        return self.result

    def hold(self, number: int, peer: Peer, hold_ms: int = 1000) -> Waiting:
        held = Waiting(number, peer)
        self.engine.hold(held, hold_ms)
        return held


async def test_a_woken_request_runs_at_the_end_of_the_turn_and_is_answered() -> None:
    polling, peer = Polling(), Peer()
    held = polling.hold(1, peer)
    assert (held.request.is_held, held.request.body) == (True, b"")
    polling.engine.wake([held])
    assert (polling.engine.count, polling.released, polling.ran) == (0, [1], [])
    await asyncio.sleep(0)
    assert peer.answers == [(1, 0)]
    polling.engine.stop()


async def test_a_request_ends_at_most_one_tick_after_its_time() -> None:
    polling, peer = Polling(), Peer()
    polling.hold(1, peer, 1000)
    polling.hold(2, peer, 10 * MAX_HOLD_MS)
    polling.clock.advance(999)
    polling.engine.end_overdue()
    assert polling.engine.count == 2
    polling.clock.advance(1 + TICK_MS)
    polling.engine.end_overdue()
    assert polling.released == [1]
    polling.clock.advance(MAX_HOLD_MS)
    polling.engine.end_overdue()
    assert polling.released == [1, 2]
    polling.engine.stop()
    assert polling.ran == [1, 2]


async def test_a_connection_that_ends_takes_its_requests_along() -> None:
    polling, gone, stays = Polling(), Peer(), Peer()
    polling.hold(1, gone)
    polling.hold(2, stays)
    polling.hold(3, gone)
    polling.engine.connection_closed(cast(Connection, gone))
    assert sorted(polling.released) == [1, 3]
    polling.engine.stop()
    assert (polling.ran, polling.engine.count) == ([2], 0)


async def test_a_stop_answers_every_request() -> None:
    polling, peer = Polling(), Peer()
    for number in range(5):
        polling.hold(number, peer)
    polling.engine.stop()
    assert sorted(peer.answers) == [(number, 0) for number in range(5)]
    assert polling.engine.is_stopped


async def test_a_refusal_and_a_later_answer_reach_the_client() -> None:
    polling, peer = Polling(), Peer()
    polling.result = CometError("gone", code=ResponseCode.TOPIC_NOT_EXIST)
    polling.engine.wake([polling.hold(1, peer)])
    await asyncio.sleep(0)

    async def later() -> Answer:
        await asyncio.sleep(0)
        return Answer(ResponseCode.PULL_NOT_FOUND)

    polling.result = later()
    polling.engine.wake([polling.hold(2, peer)])
    for _ in range(4):
        await asyncio.sleep(0)
    polling.result = DEFERRED
    polling.engine.wake([polling.hold(3, peer)])
    await asyncio.sleep(0)
    assert peer.answers == [(1, ResponseCode.TOPIC_NOT_EXIST), (2, ResponseCode.PULL_NOT_FOUND)]
    assert polling.ran == [1, 2, 3]
    polling.engine.stop()


async def test_a_request_that_is_held_again_and_again_leaves_nothing_behind() -> None:
    polling, peer = Polling(), Peer()
    for number in range(100):
        polling.engine.wake([polling.hold(number, peer, 1000)])
    assert len(polling.engine._ticks) == len(polling.engine._ends) == 1
    polling.clock.advance(1000 + TICK_MS)
    polling.engine.end_overdue()
    assert (polling.engine._ticks, polling.engine._ends, polling.engine._of_connection) == ([], {}, {})
    polling.engine.stop()
