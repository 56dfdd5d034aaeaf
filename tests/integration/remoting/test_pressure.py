"""Peers that are idle, slow, greedy or too many are bounded and closed, and others are served meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from cometmq.remoting.limits import KIB, MIB, Limits
from cometmq.wire.frame.command import encode_command
from tests.integration.remoting.remoting_kit import (
    ECHO,
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
async def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
    limits = quick_limits(idle_timeout_s=0.8)
    async with (
        serving(limits=limits) as server,
        connected(server) as idle,
        connected(server) as active,
    ):
        ending = asyncio.ensure_future(idle.end())
        while not ending.done():
            assert (await active.ask(ECHO)).code == 0
            await asyncio.sleep(0.02)
        assert await ending == b""
        assert (await active.ask(ECHO)).code == 0
        idle.close()
        await eventually(lambda: server.metrics.closed == {"idle": 1})


@both_loops
async def test_a_connection_on_which_only_we_write_is_not_idle() -> None:
    limits = quick_limits(idle_timeout_s=0.8)
    async with serving(limits=limits) as server, connected(server) as idle, connected(server) as written_to:
        await eventually(lambda: len(server.connections) == 2)
        name = "{}:{}".format(*written_to.sock.getsockname())
        (connection,) = (known for known in server.connections if known.remote_address == name)
        await written_to.ask(ECHO)
        ending = asyncio.ensure_future(idle.end())
        while not ending.done():
            connection.oneway(ECHO, None)
            await asyncio.sleep(0.02)
        assert connection.is_open


@both_loops
async def test_a_connection_whose_request_is_being_worked_on_is_not_idle() -> None:
    handlers = Handlers()
    limits = quick_limits(idle_timeout_s=0.2)
    async with (
        serving(handlers, limits=limits) as server,
        connected(server) as peer,
        connected(server) as idle,
    ):
        await peer.send(request(WAIT, 5))
        await soon(idle.end())
        handlers.gate.set()
        assert (await peer.answer()).opaque == 5


@both_loops
async def test_an_idle_timeout_of_zero_never_closes() -> None:
    limits = quick_limits(idle_timeout_s=0, frame_timeout_s=0.1)
    async with serving(limits=limits) as server, connected(server) as idle, connected(server) as dripping:
        await dripping.send(b"\x00")
        await soon(dripping.end())
        assert (await idle.ask(ECHO)).code == 0


@both_loops
async def test_a_frame_that_drips_in_is_closed_and_others_are_served_meanwhile() -> None:
    limits = quick_limits(frame_timeout_s=0.4)
    async with serving(limits=limits) as server, connected(server) as loris, connected(server) as other:
        whole = request(ECHO, 1, body=bytes(1000))
        ending = asyncio.ensure_future(loris.end())
        for byte in whole:
            if ending.done():
                break
            await loris.send(bytes([byte]))
            assert (await other.ask(ECHO)).code == 0
            await asyncio.sleep(0.01)
        assert await soon(ending) == b""
        await eventually(lambda: server.metrics.closed == {"slow sender": 1})


@both_loops
async def test_many_small_frames_in_pieces_are_not_taken_for_a_dripping_one() -> None:
    limits = quick_limits(frame_timeout_s=0.8)
    async with serving(limits=limits) as server, connected(server) as peer, connected(server) as loris:
        await loris.send(b"\x00")
        ending = asyncio.ensure_future(loris.end())
        opaque = 0
        while not ending.done():  # for as long as a dripping frame lives, every read ends inside a frame
            opaque += 1
            whole = request(ECHO, opaque)
            await peer.send(whole[:5])
            await asyncio.sleep(0.005)
            await peer.send(whole[5:] + b"\x00")
            assert (await peer.answer()).opaque == opaque
            await peer.send(request(ECHO, 0)[1:])
            assert (await peer.answer()).opaque == 0
        assert server.metrics.closed == {"slow sender": 1}


@both_loops
async def test_a_slow_reader_is_not_read_any_more_and_others_are_served() -> None:
    """What is written for it stays bounded, and its requests wait in its own socket."""
    handlers = Handlers()
    handlers.large_answer = bytes(100_000)
    limits = quick_limits(write_high_bytes=256 * KIB, write_low_bytes=64 * KIB, write_timeout_s=20.0)
    async with (
        serving(handlers, limits=limits) as server,
        connected(server, receive_bytes=8 * KIB) as slow,
        connected(server) as other,
    ):
        await slow.send(b"".join(request(LARGE, opaque) for opaque in range(500)))
        await eventually(lambda: any(connection.channel.write_paused for connection in server.connections))
        handled = len(handlers.seen)
        assert handled < 300  # the socket buffers take some; 50 MB were asked for
        held = max(connection.held_bytes for connection in server.connections)
        assert held < 256 * KIB + 2 * 100_000 + 500 * 200
        await other.ask(ECHO)
        assert len(handlers.seen) == handled + 1
        answers = [await slow.answer() for _ in range(500)]
        assert [answer.opaque for answer in answers] == list(range(500))
        assert (await slow.ask(ECHO, 501)).opaque == 501


@both_loops
async def test_a_peer_that_takes_nothing_for_too_long_is_closed() -> None:
    handlers = Handlers()
    handlers.large_answer = bytes(1 * MIB)
    limits = quick_limits(write_timeout_s=0.3)
    async with (
        serving(handlers, limits=limits) as server,
        connected(server, receive_bytes=8 * KIB) as stuck,
        connected(server) as other,
    ):
        await stuck.send(request(LARGE) * 20)
        await eventually(lambda: "slow reader" in server.metrics.closed)
        assert server.metrics.closed == {"slow reader": 1}
        assert (await other.ask(ECHO)).code == 0
        assert len(server.connections) == 1


@both_loops
async def test_a_peer_that_takes_a_little_again_and_again_is_not_closed() -> None:
    handlers = Handlers()
    handlers.large_answer = bytes(1 * MIB)
    limits = quick_limits(write_timeout_s=1.0, write_high_bytes=64 * KIB, write_low_bytes=16 * KIB)
    async with serving(handlers, limits=limits) as server, connected(server, receive_bytes=8 * KIB) as slow:
        loop = asyncio.get_running_loop()
        await slow.send(request(LARGE) * 50)
        started = loop.time()
        while loop.time() - started < 2.5:  # longer than a peer that takes nothing would live
            await slow.read(128 * KIB)
            await asyncio.sleep(0.02)
        assert server.metrics.closed == {}


@both_loops
async def test_one_segment_of_requests_with_large_answers_is_not_answered_all_at_once() -> None:
    """A thousand small requests that ask for a gigabyte must not make the server hold it."""
    handlers = Handlers()
    handlers.large_answer = bytes(1 * MIB)
    limits = quick_limits(write_timeout_s=20.0)
    async with serving(handlers, limits=limits) as server, connected(server, receive_bytes=8 * KIB) as peer:
        await peer.send(b"".join(request(LARGE, opaque) for opaque in range(1000)))
        await eventually(lambda: any(connection.channel.write_paused for connection in server.connections))
        assert len(handlers.seen) < 20
        (connection,) = server.connections
        assert connection.unwritten_bytes < 4 * MIB
        for opaque in range(20):
            assert (await peer.answer()).opaque == opaque
        assert len(handlers.seen) < 60


@both_loops
async def test_a_pile_of_unasked_writes_closes_the_peer_at_its_limit() -> None:
    """What the server sends by itself knows no pause; a peer that takes nothing of it is closed."""
    limits = quick_limits(max_write_bytes=4 * MIB)
    async with serving(limits=limits) as server, connected(server, receive_bytes=8 * KIB) as peer:
        await peer.ask(ECHO)
        (connection,) = server.connections
        sent = 0
        while connection.is_open:
            connection.oneway(ECHO, None, bytes(1 * MIB))
            sent += 1
            assert sent < 30
        await eventually(lambda: server.metrics.closed == {"slow reader": 1})


@both_loops
async def test_connections_over_the_limit_are_closed_at_once() -> None:
    async with (
        serving(limits=quick_limits(max_connections=2)) as server,
        connected(server) as first,
        connected(server) as second,
    ):
        await first.ask(ECHO)
        await second.ask(ECHO)
        async with connected(server) as third:
            assert await soon(third.end()) == b""
        assert server.metrics.refused == 1
        first.close()
        await eventually(lambda: len(server.connections) == 1)
        async with connected(server) as fourth:
            assert (await fourth.ask(ECHO)).code == 0


@both_loops
async def test_with_too_much_buffered_the_largest_holder_is_closed() -> None:
    """Many unfinished frames must not take all the memory."""
    limits = quick_limits(max_buffered_bytes=1 * MIB)
    async with (
        serving(limits=limits) as server,
        connected(server) as greedy,
        connected(server) as modest,
        connected(server) as last,
    ):
        await greedy.send(request(ECHO, body=bytes(2 * MIB))[: 700 * KIB])
        await modest.send(request(ECHO, 7, body=bytes(400 * KIB))[: 200 * KIB])
        await eventually(lambda: server.buffered_bytes == 900 * KIB)
        await last.send(request(ECHO, body=bytes(400 * KIB))[: 300 * KIB])
        assert await soon(greedy.end()) == b""
        await eventually(lambda: server.buffered_bytes == 500 * KIB)
        assert server.metrics.closed == {"too much buffered": 1}
        await modest.send(request(ECHO, 7, body=bytes(400 * KIB))[200 * KIB :])
        assert (await modest.answer()).opaque == 7


@both_loops
async def test_unwritten_bytes_count_as_buffered_too() -> None:
    handlers = Handlers()
    handlers.large_answer = bytes(12 * MIB)
    limits = quick_limits(max_buffered_bytes=1 * MIB, frame_timeout_s=0.4)
    async with serving(handlers, limits=limits) as server, connected(server, receive_bytes=8 * KIB) as slow:
        await slow.send(request(LARGE))
        await eventually(lambda: server.metrics.closed == {"too much buffered": 1})


@both_loops
async def test_the_counted_bytes_return_to_zero() -> None:
    async with serving() as server:
        async with connected(server) as peer, connected(server) as quitter:
            await quitter.send(request(ECHO, body=bytes(1000))[:500])
            await peer.send(request(ECHO, 1)[:7])
            await eventually(lambda: server.buffered_bytes == 507)
            await peer.send(request(ECHO, 1)[7:])
            await peer.answer()
            assert server.buffered_bytes == 500
        await eventually(lambda: server.buffered_bytes == 0)


@both_loops
async def test_hundreds_of_connections_are_looked_after_in_turns() -> None:
    """More than one turn's worth: idle ones are all found, whichever turn they are in."""
    limits = quick_limits(idle_timeout_s=0.3)
    async with serving(limits=limits) as server:
        peers = [connected(server) for _ in range(700)]
        opened = [await context.__aenter__() for context in peers]
        try:
            assert await asyncio.gather(*(peer.end() for peer in opened)) == [b""] * 700
            for peer in opened:
                peer.close()
            await eventually(lambda: server.metrics.closed == {"idle": 700})
        finally:
            for context in peers:
                await context.__aexit__(None, None, None)


@both_loops
async def test_a_frame_in_single_bytes_is_handled() -> None:
    async with serving() as server, connected(server) as peer:
        await peer.send(request(ECHO, 1, body=b"drop") + request(ECHO, 2, body=b"by drop"), chunk_bytes=1)
        assert [bytes((await peer.answer()).body) for _ in range(2)] == [b"drop", b"by drop"]


@both_loops
async def test_a_frame_of_the_largest_size_passes_in_both_directions() -> None:
    async with serving() as server, calling() as client:
        limits = Limits()
        overhead = 300
        body = bytes(limits.max_frame_bytes - overhead)
        answer = await client.call(address_of(server), ECHO, body=body, timeout_s=20)
        assert len(answer.body) == len(body)


@both_loops
async def test_a_frame_over_a_limit_of_its_own_closes_the_connection() -> None:
    limits = quick_limits(max_frame_bytes=2000)
    async with serving(limits=limits) as server, connected(server) as peer, connected(server) as other:
        await peer.send(encode_command(ECHO, 1, 0, body=bytes(5000))[:4])
        assert await soon(peer.end()) == b""
        assert (await other.ask(ECHO)).code == 0


@pytest.mark.parametrize("first_bytes", [b"", b"\x00", b"PROXY TCP4", b"\x16\x03\x01"])
@both_loops
async def test_a_preamble_that_never_ends_is_closed(first_bytes: bytes) -> None:
    """Nothing at all is idleness; a beginning without an end is a slow sender."""
    limits = quick_limits(frame_timeout_s=0.2, idle_timeout_s=0.6)
    async with serving(limits=limits) as server, connected(server) as peer:
        if first_bytes:
            await peer.send(first_bytes)
        await soon(peer.end())
        peer.close()
        expected = "slow sender" if first_bytes else "idle"
        await eventually(lambda: server.metrics.closed == {expected: 1})
