"""Mutated frames against a live name server over real sockets.

What has to hold, whatever is sent: nothing fails inside the server; a well-framed request that is not
one-way gets exactly one answer, with its opaque, a code and, unless it is a success, a sentence; a connection
is closed only where its framing is broken, and then the answers to what came before are there; memory stays
bounded; and a good request is answered all the while.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psutil
import uvloop

from cometmq.model.errors import FramingError, HeaderError
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.service import Namesrv
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    decode_command,
    encode_command,
    salvage_flag,
    salvage_opaque,
)
from cometmq.wire.frame.framing import Frame, FrameSplitter
from tests.fuzz.mutator import Mutator
from tests.fuzz.settings import SEED, how_to_repeat, share
from tests.waiting import eventually

FRAMES = share(25)
BATCH = 40
BATCHES_A_CONNECTION = 25
ANSWER_SECONDS = 20.0
MAX_GROWTH_BYTES = 64 * 1024 * 1024
GOOD_OPAQUE = 2**30
OPENINGS = [
    b"\x16\x03\x01\x02\x00\x01", b"\x16" * 100, b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", b"PROXY TCP9 \r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12), b"\r\n\r\n\x00\r\nQUIT\n\xff\xff\xff\xff",
    b"GET / HTTP/1.1\r\n\r\n", b"\x00", b"",
]  # fmt: skip


class MemoryFiles:
    """Files that are kept in memory: what is fuzzed here is not the disk."""

    def __init__(self) -> None:
        self._content: dict[Path, bytes] = {}

    def read(self, path: Path) -> bytes | None:
        return self._content.get(path)

    def replace(self, path: Path, data: bytes) -> None:
        self._content[path] = data


class Defects(logging.Handler):
    """Collects what the server logs as a defect of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


@contextmanager
def watching() -> Iterator[Defects]:
    defects = Defects()
    log = logging.getLogger("cometmq")
    propagated = log.propagate
    log.addHandler(defects)
    log.propagate = False  # a million warnings help nobody
    try:
        yield defects
    finally:
        log.removeHandler(defects)
        log.propagate = propagated


class FuzzPeer(asyncio.Protocol):
    """Counts the answers by opaque, and checks each."""

    def __init__(self, *, listening: bool = True) -> None:
        self.answers: Counter[int] = Counter()
        self.count = 0
        self._listening = listening
        self.problem = ""
        self.ended = False
        self._splitter = FrameSplitter()
        self._changed = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._listening:
            return
        self._splitter.feed(data)
        while (frame := self._splitter.next_frame()) is not None:
            answer = decode_command(frame)
            self.answers[answer.opaque] += 1
            self.count += 1
            if not answer.flag & RESPONSE_FLAG or (answer.code != 0 and not answer.remark):
                self.problem = f"an answer without code or sentence: {answer}"
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._changed.set()

    async def wait(self, count: int) -> None:
        """Wait for this many answers, or for the end."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while self.count < count and not self.ended:
                self._changed.clear()
                await self._changed.wait()

    async def wait_for_end(self) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            while not self.ended:
                self._changed.clear()
                await self._changed.wait()

    def take(self) -> Counter[int]:
        answers, self.answers, self.count = self.answers, Counter(), 0
        return answers


def expected_answers(data: bytes) -> tuple[Counter[int], bool]:
    """The opaques to be answered for these bytes, and whether the framing breaks."""
    splitter = FrameSplitter()
    splitter.feed(data)
    opaques: Counter[int] = Counter()
    try:
        while (frame := splitter.next_frame()) is not None:
            opaque, flag = _opaque_and_flag(frame)
            if not flag & (RESPONSE_FLAG | ONEWAY_FLAG):
                opaques[opaque] += 1
    except FramingError:
        return opaques, True
    return opaques, False


def _opaque_and_flag(frame: Frame) -> tuple[int, int]:
    try:
        command = decode_command(frame)
    except HeaderError:
        return salvage_opaque(frame), salvage_flag(frame)
    return command.opaque, command.flag


class Attack:
    """All frames of a run against one server."""

    def __init__(self, server: Namesrv, defects: Defects) -> None:
        self._server = server
        self._defects = defects
        self._mutator = Mutator(SEED)
        self._number = 0

    async def run(self) -> None:
        rss_bytes = 0
        while self._number < FRAMES:
            try:
                await self._one_connection()
            except Exception as error:
                raise AssertionError(f"{error!r} at about {how_to_repeat(self._number)}") from error
            if not rss_bytes and self._number >= FRAMES // 10:
                rss_bytes = _resident_bytes()
        growth = _resident_bytes() - rss_bytes
        assert growth < MAX_GROWTH_BYTES, f"{growth} bytes more than after a tenth of seed {SEED}"

    async def _one_connection(self) -> None:
        choice = random.Random(f"{SEED}:{self._number}:connection")
        if choice.random() < 0.2:
            await self._odd_opening(choice)
        peer = await self._connect()
        try:
            for _ in range(BATCHES_A_CONNECTION):
                await self._sound_batch(peer, choice)
            await self._broken_end(peer)
        finally:
            peer.transport.abort()

    async def _connect(self, *, listening: bool = True) -> FuzzPeer:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(
            lambda: FuzzPeer(listening=listening), "127.0.0.1", self._server.port
        )
        return peer

    async def _sound_batch(self, peer: FuzzPeer, choice: random.Random) -> None:
        """Every frame is answered once, and the connection stays."""
        frames = [self._mutator.sound(self._number + step) for step in range(BATCH - 1)]
        frames.append(encode_command(RequestCode.GET_NAMESRV_CONFIG, GOOD_OPAQUE, 0))
        self._number += BATCH
        data = b"".join(frames)
        expected, broken = expected_answers(data)
        assert not broken
        cut = choice.randrange(len(data) + 1)
        peer.transport.write(data[:cut])
        await asyncio.sleep(0)
        peer.transport.write(data[cut:])
        await peer.wait(expected.total())
        assert not peer.ended, "the server closed a connection whose framing was sound"
        self._check(peer, expected)

    async def _broken_end(self, peer: FuzzPeer) -> None:
        """Broken framing ends the connection; an unfinished frame does not."""
        data = self._mutator.broken(self._number)
        expected, broken = expected_answers(data)
        peer.transport.write(data)
        await peer.wait(expected.total())
        if broken:
            await peer.wait_for_end()
        self._check(peer, expected)
        assert peer.ended == broken

    async def _odd_opening(self, choice: random.Random) -> None:
        """First bytes of any kind may end the connection, and nothing else; it may end with a word of TLS."""
        peer = await self._connect(listening=False)
        peer.transport.write(choice.choice(OPENINGS) + self._mutator.broken(self._number))
        peer.transport.write_eof()
        await peer.wait_for_end()

    def _check(self, peer: FuzzPeer, expected: Counter[int]) -> None:
        assert peer.problem == ""
        answers = peer.take()
        assert answers == expected, f"missing {expected - answers}, too many {answers - expected}"
        assert not self._defects.found, self._defects.found[0]


def _resident_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


async def _attack(defects: Defects) -> None:
    loop = asyncio.get_running_loop()
    problems: list[str] = []
    loop.set_exception_handler(lambda _, context: problems.append(repr(context)))
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path="kv.json",
        config_store_path="namesrv.properties",
        scan_not_active_broker_interval=10**9,  # closes the connections of brokers that expire, rightly
    )
    server = Namesrv(config, files=MemoryFiles())
    await server.start()
    try:
        await Attack(server, defects).run()
        assert server.server.metrics.running == 0
        await eventually(
            lambda: not server.server.connections, "the last connections end", seconds=ANSWER_SECONDS
        )
        assert server.server.buffered_bytes == 0
    finally:
        await server.stop()
    assert problems == []


def test_a_name_server_survives_mutated_frames_and_answers_every_request() -> None:
    """N9: never silence, never a stack trace."""
    with watching() as defects, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_attack(defects))
