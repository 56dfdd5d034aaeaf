"""The pop consumer: a push consumer that shares messages instead of queues, in asyncio.

Rules kept here:
- Any number of consumers share one queue. A broker gives each message to one of them for the invisible time;
  a message that is not acknowledged by then is delivered again, to any of them.
- Only brokers know how far a group is and who has which message.
- A stop ends popping, gives back messages that no listener has begun, waits for running listeners, and sends
  the last acknowledgements, in this order.
- Names and defaults of the settings are RocketMQ's. Settings that popping cannot honour are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Unpack

from cometmq.client.consumer.engine import ConsumerEngine
from cometmq.client.consumer.interceptor import ConsumeInterceptor
from cometmq.client.consumer.listener import Listener
from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.pop.acks import PopAcks
from cometmq.client.consumer.pop.consumption import PopConsumption
from cometmq.client.consumer.pop.loop import PopLoops, PopRebalancer
from cometmq.client.consumer.pop.queues import PopQueues
from cometmq.client.consumer.pop.requests import PopPlan, PopRequests
from cometmq.client.consumer.pop.settings import PopOptions, PopSettings
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.send_back import SendBack
from cometmq.client.options import documented
from cometmq.client.serializer import Serializer
from cometmq.client.settings import settings_of
from cometmq.model.errors import CometError
from cometmq.model.message import V
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, SubscriptionData

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

_WAIT_MS: Final = 15_000


class PopEngine(ConsumerEngine):
    """The engine of one pop consumer."""

    queues: PopQueues
    consumption: PopConsumption

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PopSettings,
        namespace: str,
        subscriptions: Mapping[str, SubscriptionData],
        listener_of: Callable[[str], Listener | None],
    ) -> None:
        super().__init__(instance)
        self._settings = settings
        self._group = group
        self.offsets = OffsetStore()
        """Always empty: only brokers know the offsets of a group."""
        calls, pops = self.calls, PopRequests(instance, group)
        acks = PopAcks(pops)
        send_back = SendBack(instance, calls, group, settings, namespace)
        self.consumption = PopConsumption(
            group, settings, send_back, listener_of, self.statistics, pops, acks
        )
        first = settings.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        self.loops = PopLoops(
            instance,
            pops,
            PopPlan(
                batch_size=settings.pop_batch_nums,
                invisible_ms=settings.pop_invisible_time_ms,
                wait_ms=_WAIT_MS,
                from_first=first,
                ordered=settings.ordered,
            ),
            settings.pop_threshold_for_queue,
            settings.pull_delay_when_exception_ms / 1000,
            subscriptions.get,
            acks,
            self.consumption,
            self.statistics,
            namespace,
        )
        self.queues = PopQueues(self.loops.begin)
        self.rebalancer = PopRebalancer(
            instance, calls, group, settings, subscriptions.keys, self.queues.apply, pops
        )

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Reset the offsets of the group at the brokers."""
        for queue, offset in offsets.items():
            try:
                await self.calls.commit(self._group, queue, offset)
            except CometError as error:
                log.warning("%s was not reset to %d: %s", queue, offset, error)

    async def stop(self) -> None:
        """Wait for running listeners; waiting messages go back to the brokers."""
        await self._end_tasks()
        self.queues.drop_all()
        if not await self.consumption.stop(self._settings.stop_timeout_ms / 1000):
            log.warning("a listener was still busy when its consumer stopped; its messages come again")


@documented(PopSettings, ("serializer", "interceptors"), PopOptions.__annotations__)
class PopConsumer(PushConsumer[V]):
    """Pops messages of topics and hands them to listeners."""

    settings: PopSettings

    def __init__(
        self,
        group: str,
        settings: PopSettings | None = None,
        *,
        serializer: Serializer[V] | None = None,
        interceptors: Sequence[ConsumeInterceptor] = (),
        **options: Unpack[PopOptions],
    ) -> None:
        super().__init__(
            group,
            settings_of(PopSettings, settings, options, type(self), PopOptions.__annotations__),
            serializer=serializer,
            interceptors=interceptors,
        )

    def _retry_topics(self) -> list[str]:
        return []  # brokers pop the retry topic along

    def _consume_timeout_ms(self) -> int:
        return self.settings.pop_invisible_time_ms

    def _make_engine(self, instance: ClientInstance) -> ConsumerEngine:
        return PopEngine(
            instance, self._group, self.settings, self._namespace, self._subscriptions, self._listener_of
        )
