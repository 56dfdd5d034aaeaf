"""Requests against a server, many at a time on several connections, each answered exactly once.

What has to wait is answered later; whatever is still open when the server stops in order is answered then.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

from cometmq.model.errors import HeaderError
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, decode_command, encode_command
from cometmq.wire.frame.framing import FrameSplitter
from tests.fuzz.odd_values import odd_body, odd_name
from tests.fuzz.requests import Request, code_name
from tests.fuzz.settings import SEED
from tests.fuzz.watch import Findings, check_answer

BATCH: Final = 50
CONNECTIONS: Final = 4
ANSWER_S: Final = 20.0
MOST_WAITING: Final = 2_000
MOST_FAILURES: Final = 5
"""After so many batches that were not answered in time the rest is not tried any more."""
ABANDONED_EVERY: Final = 40
"""Every so many batches one is sent on a connection that ends at once, with its answers on the way."""


class FuzzConnection(asyncio.Protocol):
    """Knows what was asked and is not answered; answers what the server asks, oddly."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._splitter = FrameSplitter()
        self._changed = asyncio.Event()
        self._choice = random.Random(SEED)
        self.open: dict[int, Request] = {}
        self.codes: Counter[tuple[int, int]] = Counter()
        self.prompt = 0
        """How many of the open ones should be answered at once."""
        self.ended = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._splitter.feed(data)
        while (frame := self._splitter.next_frame()) is not None:
            try:
                command = decode_command(frame)
            except HeaderError as error:
                self._findings.add("an answer that cannot be read", f"{error} {bytes(frame.header)[:300]!r}")
                continue
            if command.flag & RESPONSE_FLAG:
                self._take_answer(command)
            elif not command.flag & ONEWAY_FLAG:
                self._answer(command)
        self._changed.set()

    def _take_answer(self, answer: Command) -> None:
        request = self.open.pop(answer.opaque, None)
        if request is None:
            self._findings.add("an answer to nothing, or a second one", answer)
            return
        if not request.may_wait:
            self.prompt -= 1
        self.codes[request.code, answer.code] += 1
        check_answer(self._findings, answer, request)

    def _answer(self, request: Command) -> None:
        """What a client should not answer, or nothing at all."""
        choice = self._choice
        if choice.random() < 0.3:
            return
        fields = {odd_name(choice): odd_name(choice)} if choice.random() < 0.2 else None
        code = choice.choice((0, 0, 0, 1, -1, 2**31 - 1))
        try:
            data = encode_command(
                code, request.opaque, RESPONSE_FLAG, fields, body=odd_body(choice), remark="x"
            )
        except (ValueError, HeaderError):
            return
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._changed.set()

    def send(self, requests: list[Request]) -> None:
        for request in requests:
            if not request.is_oneway:
                self.open[request.opaque] = request
                self.prompt += not request.may_wait
        self.transport.write(b"".join(request.data for request in requests))

    async def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait until it is so, or the connection has ended; False if that takes too long."""
        deadline = time.monotonic() + seconds
        while not self.ended and not done():
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.01, deadline - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                return done()
        return True


class Attack:
    """All requests of a run against one server."""

    def __init__(self, port: int, make: Callable[[int], Request], findings: Findings) -> None:
        self._port = port
        self._make = make
        self._findings = findings
        self.codes: Counter[tuple[int, int]] = Counter()
        """How often which request was answered with which code."""
        self._connections: list[FuzzConnection] = []
        self._next = 0
        self._end = 0
        self._failures = 0

    async def run(self, first: int, count: int) -> None:
        """Send these requests; leaves open only what may wait."""
        self._next, self._end = first, first + count
        while len(self._connections) < CONNECTIONS:
            self._connections.append(await self._connect())
        await asyncio.gather(*(self._work(connection) for connection in self._connections))

    @property
    def position(self) -> int:
        """The number of the next request."""
        return self._next

    async def _connect(self) -> FuzzConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: FuzzConnection(self._findings), "127.0.0.1", self._port
        )
        return connection

    async def _work(self, connection: FuzzConnection) -> None:
        while self._next < self._end and not connection.ended and self._failures < MOST_FAILURES:
            begin = self._next
            self._next = min(begin + BATCH, self._end)
            requests = [self._make(number) for number in range(begin, self._next)]
            if begin // BATCH % ABANDONED_EVERY == ABANDONED_EVERY - 1:
                await self._abandon(requests)
                continue
            connection.send(requests)
            in_time = await connection.wait(lambda: connection.prompt <= 0, ANSWER_S)
            if not in_time or connection.ended:
                self._tell_unanswered(connection, "a request that was not answered within 20 s", begin)
                self._failures += 1
            await connection.wait(lambda: len(connection.open) < MOST_WAITING, 2 * ANSWER_S)

    def _tell_unanswered(self, connection: FuzzConnection, kind: str, begin: int = 0) -> None:
        if connection.ended:
            kind = "a connection that the server closed"
        late = [each for each in connection.open.values() if not each.may_wait or connection.ended]
        for request in late[:3]:
            self._findings.add(kind, request)
        if not late:
            self._findings.add(kind, f"at about request {begin}")
        for request in late:
            del connection.open[request.opaque]
        connection.prompt = 0

    async def _abandon(self, requests: list[Request]) -> None:
        connection = await self._connect()
        connection.transport.write(b"".join(request.data for request in requests))
        connection.transport.close()

    async def wait_for_the_rest(self, seconds: float) -> None:
        """Wait until nothing is open, or for so long; what waits for messages may be open until the stop."""
        deadline = time.monotonic() + seconds
        for connection in self._connections:
            while connection.open and not connection.ended and time.monotonic() < deadline:
                await connection.wait(lambda: False, 0.05)

    async def wait_for_the_end(self) -> None:
        """After the server was told to stop: everything is answered, then the connection ends."""
        for connection in self._connections:
            if not await connection.wait(lambda: False, ANSWER_S):
                self._findings.add("a connection that an orderly stop did not end", "")
            for request in connection.open.values():
                self._findings.add("a request that an orderly stop left unanswered", request)
            self.codes += connection.codes
            connection.transport.close()

    def give_up(self) -> None:
        """The server is gone: nothing more is expected of it."""
        for connection in self._connections:
            self.codes += connection.codes
            connection.transport.abort()
        self._connections.clear()

    def summary(self) -> str:
        by_answer: Counter[int] = Counter()
        for (_, answer), count in self.codes.items():
            by_answer[answer] += count
        asked = {code for code, answer in self.codes if answer != ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
        succeeded = {code for code, answer in self.codes if answer == 0}
        never = ", ".join(sorted(map(code_name, asked - succeeded)))
        return f"answers by code: {dict(by_answer.most_common())}; never a success: {never or 'none'}"
