"""The loads of `cometmq bench` as those see them that run them, and what is said between processes.

Rules kept here: a load is told everything by its plan. Keys and TLS are not in it: each process takes them
from its environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, Self

import msgspec

from cometmq.cli.bench.figures import Tally
from cometmq.cli.bench.load_consume import ConsumerPlan, Consumes
from cometmq.cli.bench.load_send import ProducerPlan, Sends

if TYPE_CHECKING:
    from types import TracebackType

LOOK: Final = b"look"
BEGIN: Final = b"begin"
"""What a process is told: to say how many queues it reads, and to begin."""
LONGEST_LINE: Final = 1024 * 1024
TICK_S: Final = 0.2

Plan = ProducerPlan | ConsumerPlan
Tell = Callable[[Tally], None]


class Load(Protocol):
    """Something that can be started, run, and looked at meanwhile."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def work(self, stop: asyncio.Event) -> None:
        """Do what the plan says, or until somebody has had enough."""

    def queues(self) -> int:
        """How many queues it reads."""

    def measured(self) -> Tally:
        """What it has done so far."""


class Said(msgspec.Struct, omit_defaults=True):
    """What a process says: that it is ready and reads so many queues, what it has done, or why it cannot."""

    queues: int | None = None
    tally: Tally | None = None
    error: str | None = None


def load_of(plan: Plan) -> Load:
    return Sends(plan) if isinstance(plan, ProducerPlan) else Consumes(plan)


async def watch(load: Load, stop: asyncio.Event, tell: Tell) -> None:
    """Run a load, and tell how far it is meanwhile."""
    work = asyncio.create_task(load.work(stop))
    try:
        while not work.done():
            await asyncio.wait({work}, timeout=TICK_S)
            tell(load.measured())
    finally:
        work.cancel()  # which does nothing to one that is through
        await asyncio.wait({work})
    work.result()
