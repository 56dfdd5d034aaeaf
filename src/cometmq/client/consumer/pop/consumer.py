"""The pop consumer: a push consumer that takes messages one by one instead of queues, in asyncio.

Rules kept here:
- Any number of consumers share one queue. A broker gives each message to one of them, for a time; what is not
  acknowledged by then comes again, to any of them.
- How far a group is, and who gets what, is known to brokers alone.
- A stop finishes what listeners are busy with, and gives everything else back.
"""

from __future__ import annotations

from typing import Unpack

from cometmq.client.consumer.pop.engine import PopEngine
from cometmq.client.consumer.pop.settings import PopOptions, PopSettings
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.instance.instance import join_instance
from cometmq.client.service_state import ServiceState
from cometmq.model.errors import ClientError


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
        self._engine = PopEngine(
            instance, self._group, settings, self._namespace, self._subscriptions, self._listener_of
        )
        self._instance = instance
        self.state = ServiceState.RUNNING
        self._engine.start()
