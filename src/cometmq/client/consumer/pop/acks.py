"""Acknowledgements of popped messages, sent to brokers in batches.

Rules kept here:
- One request to a broker is under way at a time; later acknowledgements go with the next one. So a slow
  consumer acknowledges at once, and a fast one in batches.
- A request that gets no response, or a busy one, is repeated until the invisible time of its messages ends.
- The pop loop bounds the acknowledgements that wait: a message counts as held until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.client.consumer.pop.handles import PopHandle
from cometmq.client.consumer.pop.requests import PopRequests
from cometmq.model.errors import CometError
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.client.consumer.pop.queues import PopQueue

log = logging.getLogger("cometmq.client")

_AT_ONCE: Final = 512
_AGAIN_AFTER_S: Final = 1.0
_BUSY: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)


class _Ack(NamedTuple):
    pq: PopQueue
    handle: PopHandle
    expires_s: float


class PopAcks:
    """Acknowledges messages of one consumer."""

    def __init__(self, calls: PopRequests) -> None:
        self._calls = calls
        self._waiting: dict[str, deque[_Ack]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}

    def add(self, pq: PopQueue, handles: Iterable[PopHandle], expires_s: float) -> None:
        """Acknowledge messages whose invisible time ends at `expires_s` of the monotonic clock."""
        broker_name = pq.queue.broker_name
        waiting = self._waiting.setdefault(broker_name, deque())
        waiting.extend(_Ack(pq, handle, expires_s) for handle in handles)
        if broker_name not in self._senders:
            task = asyncio.get_running_loop().create_task(self._send(broker_name, waiting))
            self._senders[broker_name] = task
            task.add_done_callback(lambda _: self._senders.pop(broker_name, None))

    async def _send(self, broker_name: str, waiting: deque[_Ack]) -> None:
        while waiting:
            acks = [waiting.popleft() for _ in range(min(len(waiting), _AT_ONCE))]
            try:
                await self._calls.ack(broker_name, [(ack.pq.queue.topic, ack.handle) for ack in acks])
            except CometError as error:
                log.warning("%s did not take %d acknowledgement(s): %s", broker_name, len(acks), error)
                now = time.monotonic()
                worth_it = error.retriable or error.code in _BUSY
                again = [ack for ack in acks if worth_it and ack.expires_s > now]
                acks = [ack for ack in acks if not worth_it or ack.expires_s <= now]
                waiting.extendleft(reversed(again))
                if again:
                    await asyncio.sleep(_AGAIN_AFTER_S)
            _settle(acks)

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything is acknowledged; False if the time was too short."""
        late: set[asyncio.Task[None]] = set()
        if self._senders:
            _, late = await asyncio.wait(list(self._senders.values()), timeout=timeout_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return not late


def _settle(acks: Sequence[_Ack]) -> None:
    for ack in acks:
        ack.pq.settled(1)
