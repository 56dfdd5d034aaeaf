"""Load protocol of `cometmq bench`, its processes, and the messages between them.

A load runs in the process of the command; several run in processes of their own, which are `python -m
cometmq.cli.bench.processes`. Such a process reads its plan and reports that it is ready. Whenever it is
asked, it reports how many queues it reads. Once it is told to begin, it reports its figures five times a
second and at the end. It ends when its input ends. Messages are lines of JSON, except for the two orders.

Rules kept here:
- A plan has everything a load needs, except keys and TLS, which each process takes from its environment.
- All processes are ready before the first one begins, and consumers have shared out the queues, so that no
  two of them read the same one.
- Ctrl-C ends running loads in good order, with their figures so far; an earlier or a second one ends the
  command. Worker processes get no signal: they are told, and they end if the command is killed.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from cometmq.cli.bench.figures import Tally, together
from cometmq.cli.bench.load_consume import ConsumerPlan, Consumes
from cometmq.cli.bench.load_send import ProducerPlan, Sends
from cometmq.cli.common.connect import silence_clients
from cometmq.model.errors import ClientError, CometError
from cometmq.ports.stop_signals import on_signals
from cometmq.remoting.loop import run

LOOK: Final = b"look"  # report how many queues are read
BEGIN: Final = b"begin"
LONGEST_LINE: Final = 1024 * 1024
TICK_S: Final = 0.2
WORKER: Final = "cometmq.cli.bench.processes"
_END_S: Final = 30.0
"""How long a process may take to end once it was told to."""
_SHARED_OUT_S: Final = 10.0
"""How long to wait for the queues to be shared out; others of the same group may have some of them."""


Plan = ProducerPlan | ConsumerPlan
Load = Sends | Consumes
Tell = Callable[[Tally], None]


class WorkerMessage(msgspec.Struct, omit_defaults=True):
    """A report of a process: ready with this many queues, figures so far, or an error."""

    queues: int | None = None
    tally: Tally | None = None
    error: str | None = None


def load_of(plan: Plan) -> Load:
    return Sends(plan) if isinstance(plan, ProducerPlan) else Consumes(plan)


async def watch(load: Load, stop: asyncio.Event, tell: Tell) -> None:
    """Run a load, and report its figures meanwhile."""
    work = asyncio.create_task(load.work(stop))
    try:
        while not work.done():
            await asyncio.wait({work}, timeout=TICK_S)
            tell(load.measured())
    finally:
        work.cancel()  # no effect on a finished one
        await asyncio.wait({work})
    work.result()


async def run_loads(
    plans: Sequence[Plan],
    stop: asyncio.Event,
    tell: Tell,
    *,
    enough: int | None = None,
    queues: int | None = None,
) -> Tally:
    """Run loads until they end, are stopped, or have enough messages together; consumers share `queues`."""
    if len(plans) > 1:
        return await _run_apart(plans, stop, tell, enough, queues)
    async with load_of(plans[0]) as load:
        with interrupts(stop):
            await watch(load, stop, tell)
    return load.measured()


@contextmanager
def interrupts(stop: asyncio.Event) -> Iterator[None]:
    """Ctrl-C sets `stop`; the second one interrupts."""

    def first() -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with on_signals(first, signal.SIGINT):
        yield


class _Worker:
    """A process with one load, seen from the command."""

    _decoder: Final = msgspec.json.Decoder(WorkerMessage)

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self.tally = Tally()

    @classmethod
    async def start(cls, plan: Plan) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", WORKER, stdin=PIPE, stdout=PIPE, limit=LONGEST_LINE, start_new_session=True
        )
        worker = cls(process)
        worker.write(msgspec.json.encode(plan))
        return worker

    def write(self, line: bytes) -> None:
        self._stdin.write(line + b"\n")

    async def _read(self) -> WorkerMessage | None:
        line = await self._stdout.readline()
        if not line:
            return None
        message = self._decoder.decode(line)
        if message.error is not None:
            raise ClientError(message.error)
        return message

    async def ready(self) -> int:
        """Wait for its next report; returns the number of queues that it reads."""
        message = await self._read()
        if message is None or message.queues is None:
            raise ClientError(f"a process of the load ended with code {await self._process.wait()}")
        return message.queues

    async def ask_queues(self) -> int:
        self.write(LOOK)
        return await self.ready()

    async def run(self) -> None:
        """Read its reports until it ends."""
        while (message := await self._read()) is not None:
            if message.tally is not None:
                self.tally = message.tally
        if await self._process.wait():
            raise ClientError(f"a process of the load ended with code {self._process.returncode}")

    def stop(self) -> None:
        """Tell it to end."""
        self._stdin.close()

    async def end(self) -> None:
        """Tell it to end, and wait until it is gone."""
        self.stop()
        try:
            async with asyncio.timeout(_END_S):
                while await self._stdout.read(LONGEST_LINE):
                    pass
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


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
                worker.write(BEGIN)
            await _watch_apart(workers, stop, tell, enough)
    finally:
        await asyncio.gather(*(worker.end() for worker in workers))
    return together(worker.tally for worker in workers)


async def _share_out(workers: Sequence[_Worker], queues: int) -> None:
    """Wait until every queue is assigned to a process."""
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


# A process of its own.


def _send(message: WorkerMessage) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


async def _serve() -> None:
    orders = asyncio.StreamReader(limit=LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    plan: Plan = msgspec.json.decode(await orders.readline(), type=Plan)
    stop = asyncio.Event()
    async with load_of(plan) as load:
        _send(WorkerMessage(queues=load.queues()))
        while (order := (await orders.readline()).strip()) == LOOK:
            _send(WorkerMessage(queues=load.queues()))
        if order != BEGIN:
            return
        ending = asyncio.create_task(_stop_at_end(orders, stop))
        await watch(load, stop, lambda tally: _send(WorkerMessage(tally=tally)))
        ending.cancel()
    _send(WorkerMessage(tally=load.measured()))


async def _stop_at_end(orders: asyncio.StreamReader, stop: asyncio.Event) -> None:
    while await orders.read(LONGEST_LINE):
        pass
    stop.set()


def main() -> None:
    """Run one load for the command that started this process."""
    silence_clients()
    try:
        run(_serve())
    except CometError as error:
        _send(WorkerMessage(error=str(error)))
    except BrokenPipeError:  # the command was killed
        pass


if __name__ == "__main__":
    main()
