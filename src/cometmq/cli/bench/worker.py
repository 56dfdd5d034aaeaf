"""A process of `cometmq bench`: `python -m cometmq.cli.bench.worker`.

It reads its plan, says that it is ready, says how many queues it reads as often as it is asked, and begins
when it is told to; then it says what it has done, some times a second and at the end. When its input ends, so
does it. Lines go both ways, JSON but for the two orders.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from cometmq.cli.bench.figures import ENCODER
from cometmq.cli.bench.loads import BEGIN, LONGEST_LINE, LOOK, Plan, Said, load_of, watch
from cometmq.cli.common.connect import silence_clients
from cometmq.model.errors import CometError
from cometmq.remoting.loop import run


def _say(said: Said) -> None:
    sys.stdout.buffer.write(ENCODER.encode(said) + b"\n")
    sys.stdout.buffer.flush()


async def _orders() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _serve() -> None:
    orders = await _orders()
    plan: Plan = msgspec.json.decode(await orders.readline(), type=Plan)
    stop = asyncio.Event()
    async with load_of(plan) as load:
        _say(Said(queues=load.queues()))
        while (order := (await orders.readline()).strip()) == LOOK:
            _say(Said(queues=load.queues()))
        if order != BEGIN:
            return
        ending = asyncio.create_task(_stop_at_the_end(orders, stop))
        await watch(load, stop, lambda tally: _say(Said(tally=tally)))
        ending.cancel()
    _say(Said(tally=load.measured()))


async def _stop_at_the_end(orders: asyncio.StreamReader, stop: asyncio.Event) -> None:
    while await orders.read(LONGEST_LINE):
        pass
    stop.set()


def main() -> None:
    """Run a load for the command that started this process."""
    silence_clients()
    try:
        run(_serve())
    except CometError as error:
        _say(Said(error=str(error)))
    except BrokenPipeError:  # the command was killed, and nobody wants to know
        pass


if __name__ == "__main__":
    main()
