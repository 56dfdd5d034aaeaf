"""The server that the behaviour tests talk to, whichever it is: ours in this process, or Apache's.

A behaviour is written once, in a `cases_*.py` module, for a fixture `server`. The `test_*.py` modules here
run the cases against our broker; those in `tests/compat` run the same cases against Apache's.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

from cometmq.client.admin.admin import Admin
from cometmq.model.queue import MessageQueue
from tests.waiting import eventually

PATIENCE_S: Final = 40.0
_numbers = itertools.count(1)

CASES: Final = tuple(f"tests.behaviour.{path.stem}" for path in Path(__file__).parent.glob("cases_*.py"))
"""The modules whose assertions pytest should explain, although they are not test modules themselves."""


QUICK_CHECKS: Final = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "300",
    "transactionOpBatchInterval": "100",
}
"""The settings of a broker that soon asks how transactions ended."""


class Server:
    """A name server, and behind it at least one broker that makes topics by itself."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def new_name(self, kind: str) -> str:
        """A name for a topic or a group that nobody else uses."""
        return f"{kind}-{next(_numbers)}"

    async def new_topic(self, queues: int = 4) -> str:
        """A topic of its own for a test."""
        topic = self.new_name("topic")
        async with self.admin() as admin:
            await admin.create_topic(topic, queues=queues)
        return topic

    def admin(self) -> Admin:
        return Admin(namesrv=self.namesrv, call_timeout_ms=int(PATIENCE_S * 1000))

    async def stored(self, queue: MessageQueue, count: int) -> None:
        """Wait until a queue has had this many messages.

        Apache's broker acknowledges a message before its queue and its index know of it.
        """
        async with self.admin() as admin:
            await eventually(
                lambda: admin.max_offset(queue), f"{count} messages are in {queue}", lambda end: end == count
            )
