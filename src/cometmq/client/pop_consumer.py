"""The pop consumer: a push consumer that takes messages one by one instead of queues, in asyncio.

Rules kept here:
- Any number of consumers share one queue. A broker gives each message to one of them, for a time; what is not
  acknowledged by then comes again, to any of them.
- How far a group is, and who gets what, is known to brokers alone.
- A stop finishes what listeners are busy with, and gives everything else back.
"""

from __future__ import annotations

import logging
from typing import Unpack, cast

from cometmq.client.instance import join_instance
from cometmq.client.pop_engine import PopEngine
from cometmq.client.pop_settings import PopOptions, PopSettings
from cometmq.client.push_consumer import PushConsumer
from cometmq.client.push_engine import PushEngine
from cometmq.client.queue_calls import QueueCalls
from cometmq.client.service_state import ServiceState
from cometmq.model.errors import ClientError, CometError
from cometmq.model.queue import MessageQueue

log = logging.getLogger("cometmq.client")


class PopConsumer(PushConsumer):
    """Takes messages of topics for a time, and hands them to listeners."""

    settings: PopSettings

    def __init__(
        self, group: str, settings: PopSettings | None = None, **options: Unpack[PopOptions]
    ) -> None:
        if settings is not None and options:
            raise TypeError("give settings, or keywords, not both")
        super().__init__(group, settings or PopSettings(**options))

    async def start(self) -> None:
        """Join the group and begin to take messages."""
        if not self._subscriptions:
            raise ClientError("the consumer reads nothing; subscribe to a topic before starting it")
        self._begin_start()
        settings = self.settings
        instance = await join_instance(settings, self)
        try:
            await self._announce(instance)
            await self._start_trace(instance, settings.pop_invisible_time_ms)
        except BaseException:
            await instance.remove_member(self)
            raise
        engine = PopEngine(
            instance, self._group, settings, self._namespace, self._subscriptions, self._listener_of
        )
        # The parts that a push consumer uses of its engine have the same names and meanings in this one.
        self._engine = cast(PushEngine, engine)
        self._instance = instance
        self.state = ServiceState.RUNNING
        engine.start()

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        calls = QueueCalls(self._running_instance())
        for queue, offset in offsets.items():
            if queue.topic != topic:
                continue
            try:
                await calls.commit(self._group, queue, offset)
            except CometError as error:
                log.warning("%s was not reset to %d: %s", queue, offset, error)
