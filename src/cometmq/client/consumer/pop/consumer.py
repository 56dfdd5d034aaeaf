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

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Unpack

from cometmq.client.consumer.allocation import AllocationStrategy
from cometmq.client.consumer.base import ConsumerEngine
from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.listener import Listener
from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.pop.acks import PopAcks
from cometmq.client.consumer.pop.consumption import PopConsumption
from cometmq.client.consumer.pop.loop import PopLoops, PopQueues, PopRebalancer
from cometmq.client.consumer.pop.requests import PopPlan, PopRequests
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.running_info import ConsumeStatistics
from cometmq.client.consumer.send_back import SendBack
from cometmq.client.consumer.settings import PushSettings
from cometmq.client.settings import ClientOptions, check_at_least
from cometmq.model.errors import CometError, SettingsError
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, SubscriptionData

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

MAX_POP_BATCH: Final = 32
"""The maximum that brokers hand out at once."""
MIN_INVISIBLE_MS: Final = 5_000
MAX_INVISIBLE_MS: Final = 300_000

RETRY_DELAYS_S: Final = (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip

_WAIT_MS: Final = 15_000
_NOTE_EVERY_S: Final = 5.0


class PopSettings(PushSettings, frozen=True, kw_only=True):
    """The settings of a pop consumer. Those of push consumers about pulls have no effect here."""

    pop_invisible_time_ms: int = 60_000
    """How long no other consumer gets a message that this one has; listeners should take less."""
    pop_batch_nums: int = MAX_POP_BATCH
    pop_threshold_for_queue: int = 96
    """With more messages of one queue held and not acknowledged than this, popping waits."""
    retry_delays_s: tuple[int, ...] = RETRY_DELAYS_S
    """The delays before a failed message is delivered again: the first time, the second, and so on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "pop_threshold_for_queue")
        _check_between(self, "pop_batch_nums", 1, MAX_POP_BATCH)
        _check_between(self, "pop_invisible_time_ms", MIN_INVISIBLE_MS, MAX_INVISIBLE_MS)
        if not self.retry_delays_s or min(self.retry_delays_s) < 1:
            raise SettingsError("retry_delays_s has to name at least one delay, each of at least 1 s")
        if self.broadcasting:
            raise SettingsError("a pop consumer shares messages; use a PushConsumer for broadcasting")
        if self.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise SettingsError("a pop consumer begins with the first message or the last, not at a time")


def _check_between(settings: PopSettings, name: str, least: int, most: int) -> None:
    check_at_least(settings, least, name)
    value = getattr(settings, name)
    if value > most:
        raise SettingsError(f"{name} is {value}; at most {most} is possible")


class PopOptions(ClientOptions, total=False):
    """The settings of a pop consumer as keywords; see `PopSettings`."""

    consume_from_where: ConsumeFromWhere
    strategy: AllocationStrategy
    rebalance_interval_ms: int
    min_rebalance_interval_ms: int
    pull_delay_when_exception_ms: int
    max_reconsume_times: int
    unit_mode: bool
    stop_timeout_ms: int
    enable_trace: bool
    trace_topic: str
    ordered: bool
    consume_threads: int
    consume_message_batch_max_size: int
    suspend_current_queue_time_ms: int
    pop_invisible_time_ms: int
    pop_batch_nums: int
    pop_threshold_for_queue: int
    retry_delays_s: tuple[int, ...]


class PopEngine:
    """The engine of one pop consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        settings: PopSettings,
        namespace: str,
        subscriptions: Mapping[str, SubscriptionData],
        listener_of: Callable[[str], Listener | None],
    ) -> None:
        self._settings = settings
        self.started_ms = instance.clock.now_ms()
        self.statistics = ConsumeStatistics()
        self.offsets = OffsetStore()
        """Always empty: only brokers know the offsets of a group."""
        calls, pops = BrokerCalls(instance), PopRequests(instance, group)
        acks = PopAcks(pops)
        send_back = SendBack(instance, calls, group, settings, namespace)
        self.consumption = PopConsumption(
            group, settings, pops, acks, send_back, listener_of, self.statistics
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
        self._group, self._calls = group, calls
        self.rebalancer = PopRebalancer(
            instance, calls, pops, group, settings, subscriptions.keys, self.queues.apply
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to rebalance and pop."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self.rebalancer.run()),
            loop.create_task(self._keep_statistics()),
        ]

    async def _keep_statistics(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_EVERY_S)
            self.statistics.note()

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Reset the offsets of the group at the brokers."""
        for queue, offset in offsets.items():
            try:
                await self._calls.commit(self._group, queue, offset)
            except CometError as error:
                log.warning("%s was not reset to %d: %s", queue, offset, error)

    async def stop(self) -> None:
        """Wait for running listeners; waiting messages go back to the brokers."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.queues.drop_all()
        if not await self.consumption.stop(self._settings.stop_timeout_ms / 1000):
            log.warning("a listener was still busy when its consumer stopped; its messages come again")


class PopConsumer(PushConsumer):
    """Pops messages of topics and hands them to listeners."""

    settings: PopSettings

    def __init__(
        self, group: str, settings: PopSettings | None = None, **options: Unpack[PopOptions]
    ) -> None:
        if settings is not None and options:
            raise TypeError("give settings, or keywords, not both")
        super().__init__(group, settings or PopSettings(**options))

    def _retry_topics(self) -> list[str]:
        return []  # brokers pop the retry topic along

    def _consume_timeout_ms(self) -> int:
        return self.settings.pop_invisible_time_ms

    def _make_engine(self, instance: ClientInstance) -> ConsumerEngine:
        return PopEngine(
            instance, self._group, self.settings, self._namespace, self._subscriptions, self._listener_of
        )
