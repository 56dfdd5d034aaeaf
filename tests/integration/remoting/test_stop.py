"""An orderly stop: what was accepted is answered and delivered, in time, and nothing is left behind."""

from __future__ import annotations

import asyncio

import pytest

from cometmq.model.errors import ConnectError
from cometmq.remoting.connection import Connection
from cometmq.remoting.server import RemotingServer
from cometmq.wire.codes import ResponseCode
from tests.integration.remoting.remoting_kit import (
    DEFER,
    ECHO,
    HOST,
    LARGE,
    WAIT,
    Handlers,
    address_of,
    both_loops,
    calling,
    connected,
    quick_limits,
    request,
    serving,
    soon,
)
from tests.waiting import eventually


@both_loops
async def test_handlers_that_run_are_answered_before_the_close() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, connected(server) as peer, connected(server) as idle:
        await peer.send(request(WAIT, 1, body=b"accepted") + request(WAIT, 2))
        await eventually(lambda: handlers.waiting == 2)
        stopping = asyncio.ensure_future(server.stop())
        assert await soon(idle.end()) == b""
        idle.close()
        await peer.send(request(ECHO, 3))  # too late: it is neither handled nor answered
        handlers.gate.set()
        assert [(await peer.answer()).opaque for _ in range(2)] == [1, 2]
        assert await soon(peer.end()) == b""
        peer.close()
        await soon(stopping)
        assert handlers.seen == []
        assert not server.connections


@both_loops
async def test_frames_that_wait_for_their_turn_are_answered_too() -> None:
    handlers = Handlers()
    limits = quick_limits(max_running_per_connection=2)
    async with serving(handlers, limits=limits) as server, connected(server) as peer:
        await peer.send(b"".join(request(WAIT, opaque) for opaque in range(7)))
        await eventually(lambda: handlers.waiting == 2)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        handlers.gate.set()
        assert {(await peer.answer()).opaque for _ in range(7)} == set(range(7))
        assert await soon(peer.end()) == b""
        peer.close()
        await soon(stopping)


@both_loops
async def test_answers_that_a_slow_reader_has_not_taken_yet_are_delivered() -> None:
    handlers = Handlers()
    handlers.large_answer = bytes(3_000_000)
    async with serving(handlers) as server, connected(server, receive_bytes=8192) as slow:
        await slow.send(b"".join(request(LARGE, opaque) for opaque in range(4)))
        await eventually(lambda: any(connection.channel.write_paused for connection in server.connections))
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        for opaque in range(4):
            answer = await slow.answer()
            assert (answer.opaque, len(answer.body)) == (opaque, 3_000_000)
        assert await soon(slow.end()) == b""
        slow.close()
        await soon(stopping)


@both_loops
async def test_a_peer_that_keeps_sending_still_gets_what_it_was_answered() -> None:
    handlers = Handlers()
    handlers.large_answer = bytes(500_000)
    async with serving(handlers) as server, connected(server) as peer:
        await peer.send(request(LARGE, 1) * 4)
        await eventually(lambda: len(handlers.seen) == 4)
        stopping = asyncio.ensure_future(server.stop())
        await peer.send(request(ECHO, 2, body=bytes(10_000)) * 50)
        for _ in range(4):
            assert len((await peer.answer()).body) == 500_000
        await soon(peer.end())
        peer.close()
        await soon(stopping)


@both_loops
async def test_a_handler_that_does_not_end_is_given_up_in_time_and_its_peer_is_told() -> None:
    handlers = Handlers()
    limits = quick_limits(stop_timeout_s=0.3)
    async with serving(handlers, limits=limits) as server, connected(server) as peer:
        await peer.send(request(WAIT, 5))
        await eventually(lambda: handlers.waiting)
        stopping = asyncio.ensure_future(server.stop())
        answer = await peer.answer()
        assert (answer.opaque, answer.code) == (5, ResponseCode.SYSTEM_ERROR)
        assert answer.remark == "the server stopped before it was done"
        await soon(peer.end())
        peer.close()
        await soon(stopping)
        assert server.metrics.running == 0
        assert not server.tasks


@both_loops
async def test_a_peer_that_takes_nothing_does_not_keep_the_server_from_stopping() -> None:
    handlers = Handlers()
    handlers.large_answer = bytes(10_000_000)
    limits = quick_limits(stop_timeout_s=0.3)
    async with serving(handlers, limits=limits) as server, connected(server, receive_bytes=8192) as stuck:
        await stuck.send(request(LARGE))
        await eventually(lambda: handlers.seen)
        await soon(server.stop(), 3)
        assert not server.connections


@both_loops
async def test_work_for_a_peer_that_left_is_finished() -> None:
    """A change that was accepted is made, though nobody waits for the answer."""
    handlers = Handlers()
    async with serving(handlers) as server:
        async with connected(server) as peer:
            await peer.send(request(WAIT))
            await eventually(lambda: handlers.waiting)
        await eventually(lambda: not server.connections)
        stopping = asyncio.ensure_future(server.stop())
        await asyncio.sleep(0)
        assert handlers.waiting == 1
        assert not stopping.done()
        handlers.gate.set()
        await soon(stopping)
        assert handlers.waiting == 0


@both_loops
async def test_a_deferred_request_does_not_hold_up_the_stop() -> None:
    """Who defers a request answers it before the server stops, or not at all."""
    handlers = Handlers()
    async with serving(handlers) as server, connected(server) as peer:
        await peer.send(request(DEFER))
        await eventually(lambda: handlers.deferred)
        stopping = asyncio.ensure_future(server.stop())
        assert await soon(peer.end()) == b""
        peer.close()
        await soon(stopping)


@both_loops
async def test_after_a_stop_nobody_listens_and_the_port_is_free() -> None:
    async with calling() as client:
        async with serving() as server:
            address = address_of(server)
            await client.call_ok(address, ECHO)
        with pytest.raises(ConnectError):
            await client.call(address, ECHO)
        again = RemotingServer(host=HOST, port=server.port, handlers=Handlers().table())
        await again.start()
        try:
            await client.call_ok(address, ECHO)
        finally:
            await again.stop()


@both_loops
async def test_a_stop_may_be_repeated_and_may_come_before_the_start() -> None:
    server = RemotingServer(host=HOST)
    await server.stop()
    async with serving() as other:
        await other.stop()
        await other.stop()


@both_loops
async def test_every_ended_connection_is_reported_once() -> None:
    ended: list[str] = []
    async with serving() as server:
        server.on_closed.append(lambda connection: ended.append(connection.remote_address))
        async with connected(server) as peer:
            await peer.ask(ECHO)
            name = "{}:{}".format(*peer.sock.getsockname())
        await eventually(lambda: ended)
        assert ended == [name]


@both_loops
async def test_a_listener_that_fails_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    def fail(connection: Connection) -> None:
        raise ZeroDivisionError("an apple among no children")

    async with serving() as server:
        server.on_closed.append(lambda connection: ended.append("before"))
        server.on_closed.append(fail)
        server.on_closed.append(lambda connection: ended.append("behind"))
        async with connected(server) as peer:
            await peer.ask(ECHO)
        await eventually(lambda: ended == ["before", "behind"])
        assert not server.connections
    assert any(record.exc_info for record in caplog.records)
