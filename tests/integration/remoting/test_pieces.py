"""Bodies in several pieces: written as they are, and joined on the way only where that is quicker."""

from __future__ import annotations

import mmap

import pytest

from cometmq.remoting.tls import ClientTls
from cometmq.wire.frame.command import Body
from tests.integration.remoting.remoting_kit import (
    ECHO,
    LARGE,
    Handlers,
    address_of,
    both_loops,
    calling,
    connected,
    request,
    serving,
)
from tests.waiting import eventually

KIB = 1024


def numbered(count: int, size: int) -> list[Body]:
    """Pieces of one mapping, each filled with its number."""
    mapping = mmap.mmap(-1, count * size)
    view = memoryview(mapping)
    for number in range(count):
        view[number * size : (number + 1) * size] = bytes([number % 251]) * size
    return [view[number * size : (number + 1) * size] for number in range(count)]


SHAPES = {
    "none": [],
    "an empty one": [b""],
    "one": numbered(1, 100),
    "32 small ones": numbered(32, 200),
    "32 of 4 KiB": numbered(32, 4 * KIB),
    "with empty ones": [b"", *numbered(20, 5 * KIB), b"", bytearray(b"end")],
    "more than a system call takes": numbered(3_000, 100),
    "two large ones": numbered(2, 2_000 * KIB),
}


@pytest.mark.parametrize("pieces", SHAPES.values(), ids=SHAPES)
@both_loops
async def test_an_answer_in_pieces_arrives_as_one_body(pieces: list[Body]) -> None:
    handlers = Handlers()
    handlers.large_answer = pieces
    async with serving(handlers) as server, calling() as client, calling(tls=ClientTls()) as secret:
        for each in (client, secret):
            answer = await each.call(address_of(server), LARGE)
            assert bytes(answer.body) == b"".join(pieces)
            assert (await each.call(address_of(server), ECHO, body=b"next")).body == b"next"


@pytest.mark.parametrize("pieces", SHAPES.values(), ids=SHAPES)
@both_loops
async def test_a_request_in_pieces_arrives_as_one_body(pieces: list[Body]) -> None:
    handlers = Handlers()
    async with serving(handlers) as server, calling() as client:
        answer = await client.call(address_of(server), ECHO, body=pieces)
        assert bytes(answer.body) == b"".join(pieces)
        await client.oneway(address_of(server), ECHO, body=tuple(pieces))
        await eventually(lambda: len(handlers.seen) == 2)
        assert handlers.seen[1] == handlers.seen[0]


@both_loops
async def test_pieces_reach_a_peer_that_takes_a_little_at_a_time_in_order() -> None:
    """The socket takes a part of a piece; the rest of it and of the others follows."""
    handlers = Handlers()
    handlers.large_answer = numbered(500, 3_001)
    async with serving(handlers) as server, connected(server, receive_bytes=4 * KIB) as peer:
        await peer.send(b"".join(request(LARGE, opaque) for opaque in range(5)))
        for opaque in range(5):
            answer = await peer.answer()
            assert answer.opaque == opaque
            assert bytes(answer.body) == b"".join(handlers.large_answer)


@both_loops
async def test_pieces_over_the_limit_of_a_frame_are_refused_with_a_sentence() -> None:
    handlers = Handlers()
    handlers.large_answer = [bytes(9_000 * KIB)] * 2
    async with serving(handlers) as server, calling() as client:
        answer = await client.call(address_of(server), LARGE)
        assert answer.remark is not None
        assert "too large for a frame" in answer.remark
