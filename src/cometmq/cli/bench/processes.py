"""Runs the loads of `cometmq bench`: one in this process, or several in processes of their own.

Rules kept here:
- All processes are ready before the first one begins, and those that consume have shared out the queues, so
  that no two of them read the same one.
- Ctrl-C ends loads that run, in good order and with what they have done so far; one that comes earlier, or a
  second one, ends the command. Processes get none: they are told, and end with the command if it is killed.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from cometmq.cli.bench.figures import Tally, decoder_of, together
from cometmq.cli.bench.loads import BEGIN, LONGEST_LINE, LOOK, TICK_S, Plan, Said, Tell, load_of, watch
from cometmq.model.errors import ClientError

WORKER: Final = "cometmq.cli.bench.worker"
_END_S: Final = 30.0
"""How long a process may take to end once it was told to."""
_SHARED_OUT_S: Final = 10.0
"""How long to wait for the queues to be shared out; others of the same group may have some of them."""


async def run_loads(
    plans: Sequence[Plan],
    stop: asyncio.Event,
    tell: Tell,
    *,
    enough: int | None = None,
    queues: int | None = None,
) -> Tally:
    """Run loads until they are through, somebody stops them, or all together have enough messages.

    `queues` is how many those that consume have to share.
    """
    if len(plans) > 1:
        return await _run_apart(plans, stop, tell, enough, queues)
    async with load_of(plans[0]) as load:
        with interrupts(stop):
            await watch(load, stop, tell)
    return load.measured()


@contextmanager
def interrupts(stop: asyncio.Event) -> Iterator[None]:
    """Ctrl-C stops what runs meanwhile."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, first)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class _Worker:
    """A process with a load of its own."""

    _decoder: Final = decoder_of(Said)

    def __init__(self, process: Process) -> None:
        self._process = process
        self.tally = Tally()

    @classmethod
    async def start(cls, plan: Plan) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            WORKER,
            stdin=PIPE,
            stdout=PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
        worker = cls(process)
        worker._write(msgspec.json.encode(plan))
        return worker

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")

    async def _read(self) -> Said | None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            return None
        said = self._decoder.decode(line)
        if said.error is not None:
            raise ClientError(said.error)
        return said

    async def ready(self) -> int:
        """Wait until it is ready, or has answered; how many queues it reads."""
        said = await self._read()
        if said is None or said.queues is None:
            raise ClientError(f"a process of the load ended with code {await self._process.wait()}")
        return said.queues

    async def ask_queues(self) -> int:
        self._write(LOOK)
        return await self.ready()

    def begin(self) -> None:
        self._write(BEGIN)

    async def run(self) -> None:
        """Take in what it says until it ends."""
        while (said := await self._read()) is not None:
            if said.tally is not None:
                self.tally = said.tally
        if await self._process.wait():
            raise ClientError(f"a process of the load ended with code {self._process.returncode}")

    def stop(self) -> None:
        """Tell it to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def end(self) -> None:
        """See that it is gone."""
        self.stop()
        try:
            async with asyncio.timeout(_END_S):
                while await self._read_rest():
                    pass
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _read_rest(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(LONGEST_LINE)


async def _run_apart(
    plans: Sequence[Plan], stop: asyncio.Event, tell: Tell, enough: int | None, queues: int | None
) -> Tally:
    workers: list[_Worker] = []
    try:
        for plan in plans:
            worker = await _Worker.start(plan)
            workers.append(worker)
        await asyncio.gather(*(worker.ready() for worker in workers))
        if queues is not None:
            await _share_out(workers, queues)
        with interrupts(stop):
            for worker in workers:
                worker.begin()
            await _watch_apart(workers, stop, tell, enough)
    finally:
        await asyncio.gather(*(worker.end() for worker in workers))
    return together(worker.tally for worker in workers)


async def _share_out(workers: Sequence[_Worker], queues: int) -> None:
    """Wait until each queue is read by one process."""
    deadline = time.monotonic() + _SHARED_OUT_S
    while time.monotonic() < deadline:
        if sum([await worker.ask_queues() for worker in workers]) == queues:
            return
        await asyncio.sleep(TICK_S)


async def _watch_apart(
    workers: Sequence[_Worker], stop: asyncio.Event, tell: Tell, enough: int | None
) -> None:
    running = {asyncio.create_task(worker.run()) for worker in workers}
    is_told = False
    try:
        while running:
            ended, running = await asyncio.wait(running, timeout=TICK_S)
            for each in ended:
                each.result()
            so_far = together(worker.tally for worker in workers)
            tell(so_far)
            has_enough = enough is not None and so_far.messages >= enough
            if not is_told and (stop.is_set() or has_enough):
                is_told = True
                for worker in workers:
                    worker.stop()
    finally:
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running)
