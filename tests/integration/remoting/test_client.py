"""The client over real sockets: every call ends, in time, and says what may have happened to it."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cometmq.model.errors import (
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    MessageError,
    RemotingError,
    ResponseError,
    TooManyRequestsError,
)
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.server import RemotingServer
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import RESPONSE_FLAG, Command, Payload, encode_command, payload_bytes
from cometmq.wire.frame.framing import JSON, ROCKETMQ
from cometmq.wire.header.schema import Fields
from cometmq.wire.headers.namesrv import GetRouteInfoRequest
from tests.integration.remoting.remoting_kit import (
    CALL_BACK,
    ECHO,
    HOST,
    NEED_TOPIC,
    REFUSE,
    UNSERVED,
    WAIT,
    Handlers,
    Peer,
    address_of,
    both_loops,
    calling,
    quick_limits,
    serving,
    soon,
)
from tests.waiting import eventually


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


@asynccontextmanager
async def listening(*, backlog: int = 5) -> AsyncIterator[tuple[str, socket.socket]]:
    """A listener of which nobody accepts unless the test does."""
    sock = socket.socket()
    try:
        sock.setblocking(False)
        sock.bind((HOST, 0))
        sock.listen(backlog)
        yield f"{HOST}:{sock.getsockname()[1]}", sock
    finally:
        sock.close()


@asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """An address that takes no connection and refuses none: its backlog is full."""
    async with listening(backlog=0) as (address, listener):
        fillers: list[socket.socket] = []
        try:
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
                fillers.append(filler)
            yield address
        finally:
            for filler in fillers:
                filler.close()


@asynccontextmanager
async def mute_server() -> AsyncIterator[tuple[str, list[Peer]]]:
    """A server whose connections the test handles byte by byte."""
    loop = asyncio.get_running_loop()
    peers: list[Peer] = []
    async with listening() as (address, listener):

        async def accept() -> None:
            while True:
                sock, _ = await loop.sock_accept(listener)
                sock.setblocking(False)
                peers.append(Peer(sock))

        accepting = loop.create_task(accept())
        try:
            yield address, peers
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            for peer in peers:
                peer.close()


async def opaque_of_first(peers: list[Peer]) -> int:
    """The opaque of the first call that comes."""
    await eventually(lambda: peers)
    return (await peers[0].answer()).opaque


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
@both_loops
async def test_a_call_gives_the_answer(kind: int) -> None:
    async with serving() as server, calling(serialize_type=kind) as client:
        answer = await client.call(address_of(server), ECHO, body=b"hello")
        assert (answer.code, bytes(answer.body)) == (0, b"hello")
        answer = await client.call_ok(address_of(server), NEED_TOPIC, GetRouteInfoRequest(topic="orders"))
        assert bytes(answer.body) == b"orders"


@both_loops
async def test_an_answer_with_another_code_is_an_answer_and_an_error_only_where_success_is_needed() -> None:
    async with serving() as server, calling() as client:
        assert (await client.call(address_of(server), REFUSE)).code == ResponseCode.NO_PERMISSION
        with pytest.raises(ResponseError, match="not today; come back tomorrow") as caught:
            await client.call_ok(address_of(server), REFUSE)
        assert caught.value.code == ResponseCode.NO_PERMISSION


@both_loops
async def test_many_calls_at_once_share_one_connection_and_each_gets_its_own_answer() -> None:
    """P2, P3: one connection an address; the first calls wait for one attempt together."""
    async with serving() as server, calling() as client:
        bodies = [b"%d" % number for number in range(300)]
        answers = await asyncio.gather(
            *(client.call(address_of(server), ECHO, body=body, timeout_s=20) for body in bodies)
        )
        assert [bytes(answer.body) for answer in answers] == bodies
        assert server.metrics.accepted == 1
        assert client.calls_in_flight == 0


@both_loops
async def test_answers_in_any_order_find_their_calls() -> None:
    async with mute_server() as (address, peers), calling() as client:
        calls = [asyncio.ensure_future(client.call(address, ECHO, body=b"%d" % n)) for n in range(5)]
        await eventually(lambda: peers)
        requests = [await peers[0].answer() for _ in calls]
        for request in reversed(requests):
            await peers[0].send(encode_command(0, request.opaque, 1, body=bytes(request.body)))
        answers = await soon(asyncio.gather(*calls))
        assert [bytes(answer.body) for answer in answers] == [b"0", b"1", b"2", b"3", b"4"]


@both_loops
async def test_an_answer_to_an_unknown_opaque_is_dropped_and_counted() -> None:
    async with mute_server() as (address, peers), calling() as client:
        call = asyncio.ensure_future(client.call(address, ECHO))
        await eventually(lambda: peers)
        request = await peers[0].answer()
        await peers[0].send(encode_command(0, request.opaque + 1, 1) + encode_command(0, request.opaque, 1))
        assert (await soon(call)).opaque == request.opaque
        assert client.metrics.unmatched == 1


@both_loops
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once() -> None:
    async with mute_server() as (address, peers), calling() as client:
        call = asyncio.ensure_future(client.call(address, ECHO, timeout_s=20))
        await eventually(lambda: peers)
        opaque = (await peers[0].answer()).opaque
        header = b'{"flag":1,"opaque":%d,"code":[}' % opaque
        await peers[0].send((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
        with pytest.raises(RemotingError, match="cannot be read") as caught:
            await soon(call)
        assert caught.value.maybe_applied


@both_loops
async def test_an_answer_with_a_very_large_header_is_read() -> None:
    """The answer to a batch names all its messages in the header; Apache's brokers send megabytes so."""
    async with mute_server() as (address, peers), calling() as client:
        call = asyncio.ensure_future(client.call(address, ECHO, timeout_s=30))
        opaque = await opaque_of_first(peers)
        ids = ",".join(["7F00000100002A9F0000000000000000"] * 180_000)
        await peers[0].send(encode_command(0, opaque, RESPONSE_FLAG, {"msgId": ids}))
        assert (await soon(call)).fields()["msgId"] == ids


@both_loops
async def test_an_answer_over_the_header_limit_fails_its_call_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = quick_limits(max_header_bytes=1_000, max_answer_header_bytes=1_000)
    async with mute_server() as (address, peers), calling(limits=limits) as client:
        call = asyncio.ensure_future(client.call(address, ECHO, timeout_s=30))
        opaque = await opaque_of_first(peers)
        text = '"opaque": 4711, opaque: 4712, ' + "x" * 300_000
        await peers[0].send(encode_command(0, opaque, RESPONSE_FLAG, {"note": text}))
        with pytest.raises(RemotingError, match="over the limit of 1000") as failure:
            await soon(call)
        assert failure.value.maybe_applied
    assert "cannot be read: a header of" in caplog.text


@both_loops
async def test_an_unreadable_answer_that_does_not_say_whose_it_is_fails_all_calls_at_once() -> None:
    async with mute_server() as (address, peers), calling() as client:
        calls = [asyncio.ensure_future(client.call(address, ECHO, timeout_s=30)) for _ in range(3)]
        await opaque_of_first(peers)
        await peers[0].send(b"\x00\x00\x00\x08\x00\x00\x00\x04" + b"junk")
        for call in calls:
            with pytest.raises(ConnectionLostError, match="cannot be read") as failure:
                await soon(call)
            assert failure.value.maybe_applied


@both_loops
async def test_a_call_without_answer_times_out_and_says_that_it_may_have_been_applied() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, calling() as client:
        with pytest.raises(CallTimeoutError, match="did not answer request") as caught:
            await client.call(address_of(server), WAIT, timeout_s=0.05)
        assert caught.value.maybe_applied
        assert caught.value.retriable
        assert client.calls_in_flight == 0


@both_loops
async def test_time_outs_come_in_the_order_of_their_deadlines() -> None:
    async with mute_server() as (address, _), calling() as client:
        ended: list[float] = []

        async def wait(seconds: float) -> None:
            with pytest.raises(CallTimeoutError):
                await client.call(address, WAIT, timeout_s=seconds)
            ended.append(seconds)

        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(wait(seconds) for seconds in (0.3, 0.1, 0.2)))
        assert ended == [0.1, 0.2, 0.3]
        assert asyncio.get_running_loop().time() - started < 10


@both_loops
async def test_a_time_out_covers_connecting_and_says_that_nothing_was_sent() -> None:
    async with black_hole() as address, calling() as client:
        with pytest.raises(CallTimeoutError, match="could not be reached in time") as caught:
            await soon(client.call(address, ECHO, timeout_s=0.2))
        assert not caught.value.maybe_applied
        assert caught.value.retriable


@both_loops
async def test_a_call_without_any_time_left_is_not_sent() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, calling() as client:
        await client.call_ok(address_of(server), ECHO)
        with pytest.raises(CallTimeoutError) as caught:
            await client.call(address_of(server), ECHO, body=b"late", timeout_s=0)
        assert not caught.value.maybe_applied
        await client.call_ok(address_of(server), ECHO)
        assert b"late" not in handlers.seen


@both_loops
async def test_a_refused_connection_is_a_connect_error() -> None:
    async with calling() as client:
        with pytest.raises(ConnectError, match=r"cannot connect to .*refused") as caught:
            await client.call(f"{HOST}:{unused_port()}", ECHO)
        assert not caught.value.maybe_applied
        with pytest.raises(ConnectError):
            await client.oneway(f"{HOST}:{unused_port()}", ECHO)


@pytest.mark.parametrize(
    "address", ["", "localhost", "localhost:", ":99", "h:port", "h:99999", "h:²", "a..b:1", "x" * 70 + ".y:1"]
)
@both_loops
async def test_an_address_that_is_none_is_a_connect_error(address: str) -> None:
    async with calling() as client:
        with pytest.raises(ConnectError):
            await client.call(address, ECHO)


@both_loops
async def test_pending_calls_fail_at_once_when_the_peer_closes() -> None:
    async with mute_server() as (address, peers), calling() as client:
        calls = [asyncio.ensure_future(client.call(address, ECHO, timeout_s=20)) for _ in range(3)]
        await eventually(lambda: peers)
        for _ in calls:
            await peers[0].answer()
        peers[0].close()
        errors = await soon(asyncio.gather(*calls, return_exceptions=True))
        assert all(isinstance(error, ConnectionLostError) and error.maybe_applied for error in errors)
        assert client.calls_in_flight == 0


@both_loops
async def test_the_next_call_after_a_close_connects_again() -> None:
    async with serving() as server, calling() as client:
        for expected in (1, 2, 3):
            assert (await client.call(address_of(server), ECHO)).code == 0
            assert server.metrics.accepted == expected
            for connection in list(server.connections):
                connection.close("test", abort=True)
            await eventually(lambda: not client.connections)


@both_loops
async def test_after_a_time_out_in_silence_the_next_call_makes_a_new_connection() -> None:
    """The peer may be gone without a word; a new connection finds out."""
    async with mute_server() as (address, peers), calling() as client:
        with pytest.raises(CallTimeoutError):
            await client.call(address, ECHO, timeout_s=0.05)
        call = asyncio.ensure_future(client.call(address, ECHO, timeout_s=20))
        await eventually(lambda: len(peers) == 2)
        request = await peers[1].answer()
        await peers[1].send(encode_command(0, request.opaque, 1))
        assert (await soon(call)).code == 0


@both_loops
async def test_after_a_time_out_of_one_slow_request_a_lively_connection_is_kept() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, calling() as client:
        slow = asyncio.ensure_future(client.call(address_of(server), WAIT, timeout_s=0.2))
        while not slow.done():
            await client.call_ok(address_of(server), ECHO)
        with pytest.raises(CallTimeoutError):
            await slow
        await client.call_ok(address_of(server), ECHO)
        assert server.metrics.accepted == 1
        handlers.gate.set()
        await eventually(lambda: client.metrics.unmatched == 1)


@both_loops
async def test_a_cancelled_call_leaves_nothing_behind() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, calling() as client:
        await client.call_ok(address_of(server), ECHO)
        calls = [asyncio.ensure_future(client.call(address_of(server), WAIT)) for _ in range(10)]
        await eventually(lambda: handlers.waiting == 10)
        assert client.calls_in_flight == 10
        for call in calls[:9]:
            call.cancel()
        await asyncio.wait(calls[:9])
        assert client.calls_in_flight == 1
        handlers.gate.set()
        assert (await soon(calls[9])).code == 0
        assert client.calls_in_flight == 0
        assert client.metrics.unmatched == 9


@both_loops
async def test_a_call_cancelled_while_connecting_leaves_the_attempt_to_the_others() -> None:
    async with serving() as server, calling() as client:
        first = asyncio.ensure_future(client.call(address_of(server), ECHO))
        second = asyncio.ensure_future(client.call(address_of(server), ECHO, body=b"second"))
        await asyncio.sleep(0)
        first.cancel()
        assert bytes((await soon(second)).body) == b"second"
        assert first.cancelled()
        assert server.metrics.accepted == 1


@both_loops
async def test_a_call_over_the_limit_of_calls_in_flight_fails_at_once() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, calling(limits=quick_limits(max_calls_in_flight=2)) as client:
        await client.call_ok(address_of(server), ECHO)
        calls = [asyncio.ensure_future(client.call(address_of(server), WAIT)) for _ in range(2)]
        await eventually(lambda: handlers.waiting == 2)
        with pytest.raises(TooManyRequestsError, match="2 calls await answers already") as caught:
            await client.call(address_of(server), ECHO)
        assert not caught.value.maybe_applied
        handlers.gate.set()
        await soon(asyncio.gather(*calls))
        await client.call_ok(address_of(server), ECHO)


@both_loops
async def test_a_request_too_large_for_a_frame_is_not_sent() -> None:
    async with serving() as server, calling(limits=quick_limits(max_frame_bytes=5000)) as client:
        for send in (client.call, client.oneway):
            with pytest.raises(MessageError, match="send less at once"):
                await send(address_of(server), ECHO, body=bytes(6000))
        assert (await client.call(address_of(server), ECHO)).code == 0
        assert client.calls_in_flight == 0


@both_loops
async def test_a_one_way_request_arrives_and_is_not_waited_for() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, calling() as client:
        await client.oneway(address_of(server), ECHO, body=b"first")
        await client.oneway(address_of(server), UNSERVED)
        await client.oneway(address_of(server), REFUSE, body=b"second")
        await eventually(lambda: handlers.seen == [b"first", b"second"])
        assert client.calls_in_flight == 0
        assert client.metrics.unmatched == 0


@both_loops
async def test_a_stop_fails_what_is_in_flight_and_what_still_connects() -> None:
    handlers = Handlers()
    async with serving(handlers) as server, black_hole() as nowhere:
        client = RemotingClient()
        await client.call_ok(address_of(server), ECHO)
        connecting = asyncio.ensure_future(client.call(nowhere, ECHO))
        call = asyncio.ensure_future(client.call(address_of(server), WAIT))
        await eventually(lambda: handlers.waiting == 1)
        await soon(client.stop())
        with pytest.raises(ConnectionLostError):
            await call
        with pytest.raises(ConnectError):
            await connecting
        assert client.calls_in_flight == 0
        with pytest.raises(ConnectError, match="the client is stopped"):
            await client.call(address_of(server), ECHO)


@both_loops
async def test_the_server_asks_the_client_on_the_clients_own_connection() -> None:
    """C6: a client answers requests too, with its own handlers."""
    handlers = Handlers()
    async with serving() as server, calling(handlers=handlers.table()) as client:
        answer = await client.call(address_of(server), CALL_BACK, body=b"ping")
        assert bytes(answer.body) == b"ping"
        assert handlers.seen == [b"ping"]
        (connection,) = server.connections
        answer = await connection.call(UNSERVED, None, timeout_s=5)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        connection.oneway(ECHO, None, b"by the way")
        await eventually(lambda: handlers.seen == [b"ping", b"by the way"])
        assert server.calls_in_flight == 0
        assert server.metrics.accepted == 1


@both_loops
async def test_calls_of_the_server_fail_when_the_client_leaves() -> None:
    handlers = Handlers()
    async with serving() as server:
        async with calling(handlers=handlers.table()) as client:
            await client.call_ok(address_of(server), ECHO)
            (connection,) = server.connections
            pending = connection.call(WAIT, None, timeout_s=20)
            await eventually(lambda: handlers.waiting == 1)
        with pytest.raises(ConnectionLostError):
            await soon(pending)
        with pytest.raises(ConnectionLostError) as caught:
            await connection.call(WAIT, None, timeout_s=20)
        assert not caught.value.maybe_applied
        with pytest.raises(ConnectionLostError):
            connection.oneway(ECHO, None)
        assert server.calls_in_flight == 0


@both_loops
async def test_a_client_with_too_many_requests_of_the_server_running_answers_busy() -> None:
    """It must not stop reading: the answers to its own calls come on the same connection."""
    handlers = Handlers()
    limits = quick_limits(max_running_per_connection=2)
    async with serving() as server, calling(handlers=handlers.table(), limits=limits) as client:
        await client.call_ok(address_of(server), ECHO)
        (connection,) = server.connections
        calls = [connection.call(WAIT, None, timeout_s=10) for _ in range(3)]
        assert (await soon(calls[2])).code == ResponseCode.SYSTEM_BUSY
        await client.call_ok(address_of(server), ECHO)
        handlers.gate.set()
        assert [(await soon(call)).code for call in calls[:2]] == [0, 0]


class Signer:
    """A hook that adds to each call and sees each answer."""

    def __init__(self) -> None:
        self.answers: list[int] = []

    def before_call(self, address: str, code: int, fields: dict[str, str], body: Payload) -> None:
        fields["Signature"] = f"{code}-{payload_bytes(body)}"

    def after_call(self, address: str, code: int, answer: Command) -> None:
        self.answers.append(answer.code)


@both_loops
async def test_hooks_add_to_each_call_and_see_each_answer() -> None:
    hook = Signer()
    async with serving() as server, calling(call_hooks=[hook]) as client:
        answer = await client.call(address_of(server), ECHO, body=b"abc")
        assert answer.fields() == {"Signature": f"{RequestCode.GET_KV_CONFIG.value}-3"}
        await client.call(address_of(server), REFUSE)
        assert hook.answers == [0, ResponseCode.NO_PERMISSION]
        answer = await client.call(address_of(server), ECHO, {"topic": "orders", "no": None})
        assert answer.fields() == {"topic": "orders", "Signature": f"{RequestCode.GET_KV_CONFIG.value}-0"}


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
@both_loops
async def test_a_call_takes_a_declared_header_or_plain_fields(kind: int) -> None:
    async with serving() as server, calling(serialize_type=kind) as client:
        headers: list[Fields] = [GetRouteInfoRequest(topic="orders"), {"topic": "orders"}]
        for header in headers:
            assert (await client.call(address_of(server), NEED_TOPIC, header)).body == b"orders"
            assert (await client.call(address_of(server), ECHO, header)).fields() == {"topic": "orders"}


@both_loops
async def test_a_call_waits_for_a_connection_that_takes_no_more_until_its_time_is_over() -> None:
    limits = quick_limits(write_high_bytes=1000, write_low_bytes=100)
    async with mute_server() as (address, peers), calling(limits=limits) as client:
        filling = asyncio.ensure_future(client.call(address, ECHO, body=bytes(8_000_000), timeout_s=20))
        await eventually(lambda: peers)
        await eventually(lambda: any(connection.channel.write_paused for connection in client.connections))
        with pytest.raises(CallTimeoutError) as caught:
            await client.call(address, ECHO, timeout_s=0.1)
        assert not caught.value.maybe_applied
        waiting = asyncio.ensure_future(client.call(address, ECHO, body=b"next", timeout_s=20))
        first, second = await peers[0].answer(), await peers[0].answer()
        assert (len(first.body), bytes(second.body)) == (8_000_000, b"next")
        for request in (first, second):
            await peers[0].send(encode_command(0, request.opaque, 1))
        await soon(asyncio.gather(filling, waiting))


@both_loops
async def test_large_requests_and_large_answers_at_once_do_not_block_each_other() -> None:
    """A client that stopped reading while it writes would wait for a server that does the same."""
    limits = quick_limits(write_high_bytes=10_000, write_low_bytes=1000)
    async with serving(limits=limits) as server, calling(limits=limits) as client:
        body = bytes(1_000_000)
        calls = [client.call(address_of(server), ECHO, body=body, timeout_s=20) for _ in range(20)]
        answers = await soon(asyncio.gather(*calls), 20)
        assert all(len(answer.body) == len(body) for answer in answers)


@both_loops
async def test_a_server_that_goes_away_is_left_and_the_call_is_made_once_more() -> None:
    """The second server takes over the port while the first still answers those who are connected."""
    old_handlers, new_handlers = Handlers(), Handlers()
    async with serving(old_handlers) as old, calling() as client:
        address = address_of(old)
        await client.call_ok(address, ECHO, body=b"before")
        slow = asyncio.ensure_future(client.call(address, WAIT, body=b"slow"))
        await eventually(lambda: old_handlers.waiting)
        stopping = asyncio.ensure_future(old.stop(go_away_s=20))
        await eventually(lambda: old.going_away)
        new = RemotingServer(host=HOST, port=old.port, handlers=new_handlers.table())
        await new.start()
        try:
            await client.call_ok(address, ECHO, body=b"after")
            assert (old_handlers.seen, new_handlers.seen) == ([b"before"], [b"after"])
            assert not stopping.done()
            old_handlers.gate.set()
            assert bytes((await soon(slow)).body) == b"slow"
            await soon(stopping)  # the client closes with its last answer, long before the time is over
            await client.call_ok(address, ECHO, body=b"later")
            assert new_handlers.seen == [b"after", b"later"]
        finally:
            await new.stop()


@both_loops
async def test_a_second_go_away_is_a_failure_that_says_what_to_do() -> None:
    async with serving() as server, calling() as client:
        server.going_away = True
        with pytest.raises(RemotingError, match="is shutting down; try another server") as caught:
            await client.call(address_of(server), ECHO)
        assert caught.value.code == ResponseCode.GO_AWAY
        assert caught.value.retriable
        assert not caught.value.maybe_applied
        assert server.metrics.accepted == 2
        await eventually(lambda: not client.connections)


@both_loops
async def test_go_away_is_not_said_to_clients_that_do_not_know_it() -> None:
    async with serving() as server, mute_client(server) as peer:
        server.going_away = True
        await peer.send(encode_command(ECHO, 1, 0, version=475))
        assert (await peer.answer()).code == 0
        await peer.send(encode_command(ECHO, 2, 0, version=476) + encode_command(UNSERVED, 3, 0, version=479))
        assert [(await peer.answer()).code for _ in range(2)] == [ResponseCode.GO_AWAY] * 2


@asynccontextmanager
async def mute_client(server: RemotingServer) -> AsyncIterator[Peer]:
    sock = socket.create_connection((HOST, server.port))
    sock.setblocking(False)
    try:
        yield Peer(sock)
    finally:
        sock.close()


@both_loops
async def test_thousands_of_calls_time_out_without_holding_up_the_loop() -> None:
    """Each of them has a deadline of its own; looking through all of them must not take all the time."""
    async with mute_server() as (address, peers), calling() as client:
        opening = asyncio.ensure_future(client.call(address, ECHO, timeout_s=20))
        await eventually(lambda: peers and client.connections)
        (connection,) = client.connections
        calls = [connection.call(ECHO, None, timeout_s=0.3 + n / 20_000) for n in range(6_000)]
        used = time.process_time()
        await soon(asyncio.wait(calls))
        assert time.process_time() - used < 3
        assert all(isinstance(call.exception(), CallTimeoutError) for call in calls)
        assert client.calls_in_flight == 1
        logging.getLogger(__name__).debug("all %d calls timed out", len(calls))
        opening.cancel()
        await asyncio.wait([opening])


@both_loops
async def test_a_call_whose_deadline_is_at_once_does_not_hurt_the_next_one() -> None:
    """The timer of a deadline that has come already is of another kind than the others on uvloop."""
    async with serving(Handlers()) as server, calling() as client:
        now = client.loop.time()
        client.watch_deadline(now - 1)
        client.watch_deadline(now - 2)
        answer = await client.call_ok(address_of(server), ECHO, timeout_s=5)
        assert answer.code == ResponseCode.SUCCESS
