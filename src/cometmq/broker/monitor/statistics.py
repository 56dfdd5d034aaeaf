"""Rates of messages by topic, group and queue: `statsAll`, `topicStatus` and `consumerProgress` show them.

Rules kept here:
- Names and keys are RocketMQ's. There are no numbers under names that its broker declares and never counts
  (`GROUP_GET_FROM_DISK_*`, `BROKER_GET_FROM_DISK_*`, `DLQ_PUT_NUMS`), that it only logs (`GROUP_GET_FALL_*`),
  or that are made for a commercial service (`COMMERCIAL_*`, `ACCOUNT_*`). There are none of
  `TOPIC_PUT_LATENCY`, whole milliseconds by queue: a message is put in microseconds, which the metrics show.
- Nothing is counted here: puts follow from the offsets of the consume queues, gets from `counters.py`. A
  sample is taken every ten seconds, `AT_ONCE` topics or queues in one turn of the event loop.
- Samples are taken every ten seconds, ten minutes and hour, and kept for a minute, an hour and a day, as
  RocketMQ does. A rate is that of the span between the oldest and the newest sample, so it is 0 until the
  first sample and sinks to 0 a while after the last message.
- Queues are told apart with `enableDetailStat` only, at most `MOST_QUEUES` of them for puts.
- Numbers begin at 0 with each start. A number that has been sampled for a day takes about 1.5 KB.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from cometmq.broker.monitor.counters import ANY_QUEUE, Amount, TopicGroup, TopicGroupQueue, Traffic
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.model.java_numbers import natural_int
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.wire.bodies.stats import BrokerStatsData, BrokerStatsItem

SAMPLE_S: Final = 10.0
MOST_QUEUES: Final = 5_000
AT_ONCE: Final = 500

_MINUTE_SAMPLES: Final = 7
_HOUR_SAMPLES: Final = 7
_DAY_SAMPLES: Final = 25
_TICKS_PER_HOUR_SAMPLE: Final = 60
_TICKS_PER_DAY_SAMPLE: Final = 360
_SAMPLE_FIELDS: Final = 3
"""A sample is a time, and value and times then."""

_Position = tuple[int, int]
"""Up to which offset of a queue messages are counted, and up to which size."""
_BEGIN: Final[_Position] = (0, 0)


class Window:
    """The samples of one span of time."""

    __slots__ = ("_interval_ms", "_most", "_samples")

    def __init__(self, interval_ms: int, most: int) -> None:
        self._interval_ms = interval_ms
        self._most = most
        self._samples = array("q")
        """One after the other, as there are many windows."""

    def add(self, now_ms: int, value: int, times: int) -> None:
        samples = self._samples
        if not samples:
            samples.extend((now_ms - self._interval_ms, 0, 0))
        samples.extend((now_ms, value, times))
        if len(samples) > self._most * _SAMPLE_FIELDS:
            del samples[:_SAMPLE_FIELDS]

    def summary(self) -> BrokerStatsItem:
        if not self._samples:
            return BrokerStatsItem()
        first_ms, first_value, first_times = self._samples[:_SAMPLE_FIELDS]
        last_ms, value, times = self._samples[-_SAMPLE_FIELDS:]
        amount, adds, elapsed_ms = value - first_value, times - first_times, last_ms - first_ms
        return BrokerStatsItem(
            sum=amount,
            tps=amount * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
            avgpt=amount / adds if adds else 0.0,
        )


class Series:
    """How a number that only grows grew lately."""

    __slots__ = ("day", "hour", "minute")

    def __init__(self) -> None:
        self.minute = Window(10_000, _MINUTE_SAMPLES)
        self.hour = Window(600_000, _HOUR_SAMPLES)
        self.day = Window(3_600_000, _DAY_SAMPLES)

    def sample(self, now_ms: int, tick: int, value: int, times: int) -> None:
        """Note the number, and how often something was added to it."""
        self.minute.add(now_ms, value, times)
        if tick % _TICKS_PER_HOUR_SAMPLE == 0:
            self.hour.add(now_ms, value, times)
        if tick % _TICKS_PER_DAY_SAMPLE == 0:
            self.day.add(now_ms, value, times)

    def summary(self) -> BrokerStatsData:
        return BrokerStatsData(self.minute.summary(), self.hour.summary(), self.day.summary())


@dataclass(slots=True, eq=False)
class Puts:
    """Messages that came into a topic, or into one of its queues."""

    messages: int = 0
    size: int = 0
    numbers: Series = field(default_factory=Series)
    sizes: Series = field(default_factory=Series)

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.size += size

    def sample(self, now_ms: int, tick: int) -> None:
        self.numbers.sample(now_ms, tick, self.messages, self.messages)
        self.sizes.sample(now_ms, tick, self.size, self.messages)


@dataclass(slots=True, eq=False)
class Gets:
    """Messages that a group was given of a topic, or from one of its queues."""

    numbers: Series = field(default_factory=Series)
    sizes: Series = field(default_factory=Series)
    latencies: Series = field(default_factory=Series)

    def sample(self, now_ms: int, tick: int, amount: Amount) -> None:
        self.numbers.sample(now_ms, tick, amount.messages, amount.times)
        self.sizes.sample(now_ms, tick, amount.size, amount.times)
        self.latencies.sample(now_ms, tick, amount.waited_ms, amount.times)


class Statistics:
    """The rates of one broker; belongs to the event loop."""

    def __init__(
        self, settings: Settings, clock: Clock, store: MessageStore, topics: Topics, traffic: Traffic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._traffic = traffic
        self._consume_queues = store.queues.by_topic
        self._counted: dict[str, dict[int, _Position]] = {}
        """By topic and queue id: what is counted, or came before the start."""
        self._put_topics: dict[str, Puts] = {}
        """Topics that something came into since the start."""
        self._put_queues: dict[tuple[str, int], Puts] = {}
        self._get_groups: dict[TopicGroup, Gets] = {}
        self._get_queues: dict[TopicGroupQueue, Gets] = {}
        self._deleted_puts = self._deleted_gets = 0
        """Messages of topics and groups that are gone; those of the system do not count."""
        self._of_broker: dict[str, tuple[Series, Callable[[], int]]] = {
            "BROKER_PUT_NUMS": (Series(), lambda: traffic.put_messages),
            "BROKER_GET_NUMS": (Series(), lambda: traffic.got_messages),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (Series(), self._user_puts),
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (Series(), self._user_gets),
            "BROKER_ACK_NUMS": (Series(), lambda: traffic.acknowledged_messages),
            "BROKER_CK_NUMS": (Series(), lambda: traffic.checkpoints),
        }
        """By RocketMQ's name, for the whole broker: the samples, and the number as it is now."""
        self._pairs: dict[str, tuple[dict[TopicGroup, Amount], dict[TopicGroup, Series]]] = {
            "SNDBCK_PUT_NUMS": (traffic.sent_back, {}),
            "GROUP_ACK_NUMS": (traffic.acknowledged, {}),
            "GROUP_CK_NUMS": (traffic.popped, {}),
        }
        self._tick = 1
        self._sampling: Iterator[None] | None = None
        self._find: dict[str, tuple[Callable[[str], Puts | Gets | None], str]] = {
            "TOPIC_PUT_NUMS": (self._topic_puts, "numbers"),
            "TOPIC_PUT_SIZE": (self._topic_puts, "sizes"),
            "QUEUE_PUT_NUMS": (self._queue_puts, "numbers"),
            "QUEUE_PUT_SIZE": (self._queue_puts, "sizes"),
            "GROUP_GET_NUMS": (self._group_gets, "numbers"),
            "GROUP_GET_SIZE": (self._group_gets, "sizes"),
            "QUEUE_GET_NUMS": (self._queue_gets, "numbers"),
            "QUEUE_GET_SIZE": (self._queue_gets, "sizes"),
            "GROUP_GET_LATENCY": (self._timed_gets, "latencies"),
        }
        """By RocketMQ's name: who finds what was counted for a key, and which series of it is meant."""

    def start(self) -> None:
        """Count from here on; called when the store has recovered."""
        for topic, queues in self._consume_queues.items():
            ends = {queue_id: _position(queue) for queue_id, queue in queues.items() if queue.max_offset}
            if ends:
                self._counted[topic] = ends

    def forget_topic(self, topic: str) -> None:
        """Forget a deleted topic; if it comes back, it begins at 0."""
        self._counted.pop(topic, None)
        puts = self._put_topics.pop(topic, None)
        if puts is not None and not self._topics.is_system_topic(topic):
            self._deleted_puts += puts.messages
        for key in [key for key in self._put_queues if key[0] == topic]:
            del self._put_queues[key]
        self._forget_gets(topic=topic)

    def forget_group(self, group: str) -> None:
        """Forget a deleted group; if it comes back, it begins at 0."""
        self._forget_gets(group=group)

    def _forget_gets(self, *, topic: str | None = None, group: str | None = None) -> None:
        for key, amount in self._traffic.forget(topic=topic, group=group):
            self._get_queues.pop(key, None)
            if not self._topics.is_system_topic(key[0]):
                self._deleted_gets += amount.messages
        tables: list[dict[TopicGroup, Any]] = [self._get_groups, *(each for _, each in self._pairs.values())]
        for table in tables:
            for pair in [pair for pair in table if pair[0] == topic or pair[1] == group]:
                del table[pair]

    # Sampling

    def sample(self) -> None:
        """Take a sample of everything; called every ten seconds. One that takes longer is ended first."""
        if self._sampling is None:
            self._sampling = self._sample_all(self._clock.now_ms(), self._tick)
            self._tick += 1
            self._continue()

    def _continue(self) -> None:
        assert self._sampling is not None
        try:
            next(self._sampling)
        except StopIteration:
            self._sampling = None
        except BaseException:
            self._sampling = None
            raise
        else:
            asyncio.get_running_loop().call_soon(self._continue)

    def _sample_all(self, now_ms: int, tick: int) -> Iterator[None]:
        for amounts, series in self._pairs.values():
            for pair, amount in amounts.items():
                series.setdefault(pair, Series()).sample(now_ms, tick, amount.messages, amount.times)
        yield from self._sample_gets(now_ms, tick)
        yield from self._sample_puts(now_ms, tick)
        for each, value in self._of_broker.values():
            each.sample(now_ms, tick, value(), 0)  # RocketMQ does not note how often here

    def _sample_gets(self, now_ms: int, tick: int) -> Iterator[None]:
        together: dict[TopicGroup, Amount] = {}
        delivered, tells_queues = self._traffic.delivered, self._settings.broker.enable_detail_stat
        for number, (key, amount) in enumerate(list(delivered.items()), 1):
            topic, group, queue_id = key
            together.setdefault((topic, group), Amount()).add(amount)
            if tells_queues and queue_id != ANY_QUEUE and key in delivered:
                self._get_queues.setdefault(key, Gets()).sample(now_ms, tick, amount)
            if number % AT_ONCE == 0:
                yield
        for number, (pair, amount) in enumerate(together.items(), 1):
            if pair in self._traffic.delivered_pairs:
                self._get_groups.setdefault(pair, Gets()).sample(now_ms, tick, amount)
            if number % AT_ONCE == 0:
                yield

    def _sample_puts(self, now_ms: int, tick: int) -> Iterator[None]:
        for number, topic in enumerate(list(self._consume_queues), 1):
            if topic in self._consume_queues:  # and was not deleted meanwhile
                self._count_puts(topic)
            puts = self._put_topics.get(topic)
            if puts is not None:
                puts.sample(now_ms, tick)
            if number % AT_ONCE == 0:
                yield
        for number, puts in enumerate(list(self._put_queues.values()), 1):
            puts.sample(now_ms, tick)
            if number % AT_ONCE == 0:
                yield

    def _count_puts(self, topic: str) -> None:
        """Count new messages of a topic."""
        counted = self._counted.get(topic)
        for queue_id, queue in self._consume_queues[topic].items():
            begin, size = _BEGIN if counted is None else counted.get(queue_id, _BEGIN)
            if queue.max_offset == begin:
                continue
            if counted is None:
                counted = self._counted[topic] = {}
            counted[queue_id] = _position(queue)
            # A queue of a slave may have been cut; one may have lost files that were never counted.
            count = queue.max_offset - max(min(begin, queue.max_offset), queue.min_offset)
            if count:
                self._put_topics.setdefault(topic, Puts()).add(count, queue.written_size - size)
                detail = self._put_detail(topic, queue_id)
                if detail is not None:
                    detail.add(count, queue.written_size - size)

    def _put_detail(self, topic: str, queue_id: int) -> Puts | None:
        if not self._settings.broker.enable_detail_stat:
            return None
        puts = self._put_queues.get((topic, queue_id))
        if puts is None and len(self._put_queues) < MOST_QUEUES:
            puts = self._put_queues[topic, queue_id] = Puts()
        return puts

    def _user_puts(self) -> int:
        """How many messages came into topics that are not the system's."""
        is_system = self._topics.is_system_topic
        own = (puts.messages for topic, puts in self._put_topics.items() if not is_system(topic))
        return self._deleted_puts + sum(own)

    def _user_gets(self) -> int:
        """How many messages of topics that are not the system's were given to groups."""
        is_system, delivered = self._topics.is_system_topic, self._traffic.delivered
        own = (amount.messages for (topic, *_), amount in delivered.items() if not is_system(topic))
        return self._deleted_gets + sum(own)

    # Reading

    def put_tps(self, topic: str) -> float:
        """How many messages a second came into a topic."""
        puts = self._put_topics.get(topic)
        return 0.0 if puts is None else puts.numbers.minute.summary().tps

    def get_tps(self, group: str, topic: str) -> float:
        """How many messages a second of a topic a group was given."""
        gets = self._get_groups.get((topic, group))
        return 0.0 if gets is None else gets.numbers.minute.summary().tps

    def find(self, name: str, key: str) -> BrokerStatsData | None:
        """The numbers under one of RocketMQ's names; None if there are none."""
        series: Series | None = None
        if name in self._find:
            find, attribute = self._find[name]
            series = getattr(find(key), attribute, None)
        elif name in self._of_broker:
            series = self._of_broker[name][0] if key == self._settings.broker.broker_cluster_name else None
        elif name in self._pairs:
            topic, _, group = key.partition("@")
            amounts, sampled = self._pairs[name]
            series = sampled.get((topic, group))
            if series is None and (topic, group) in amounts:
                series = Series()
        return None if series is None else series.summary()

    def _topic_puts(self, topic: str) -> Puts | None:
        found = self._put_topics.get(topic)
        return Puts() if found is None and self._is_new(topic) else found

    def _queue_puts(self, key: str) -> Puts | None:
        topic, _, text = key.partition("@")
        queue_id = natural_int(text)
        if queue_id is None:
            return None
        found = self._put_queues.get((topic, queue_id))
        tells_queues = self._settings.broker.enable_detail_stat
        return Puts() if found is None and tells_queues and self._is_new(topic, queue_id) else found

    def _is_new(self, topic: str, queue_id: int | None = None) -> bool:
        counted = self._counted.get(topic, {})
        return any(
            queue.max_offset > counted.get(number, _BEGIN)[0]
            for number, queue in self._consume_queues.get(topic, {}).items()
            if queue_id in (None, number)
        )

    def _group_gets(self, key: str) -> Gets | None:
        topic, _, group = key.partition("@")
        found = self._get_groups.get((topic, group))
        return Gets() if found is None and (topic, group) in self._traffic.delivered_pairs else found

    def _queue_gets(self, key: str) -> Gets | None:
        topic, _, rest = key.partition("@")
        text, _, group = rest.partition("@")
        queue_id = natural_int(text)
        if queue_id is None:
            return None
        found = self._get_queues.get((topic, group, queue_id))
        is_counted = (topic, group, queue_id) in self._traffic.delivered
        return Gets() if found is None and is_counted and self._settings.broker.enable_detail_stat else found

    def _timed_gets(self, key: str) -> Gets | None:
        """With queues told apart the key begins with a queue id."""
        if not self._settings.broker.enable_detail_stat:
            return self._group_gets(key)
        queue_id, _, rest = key.partition("@")
        topic, _, group = rest.partition("@")
        return self._queue_gets(f"{topic}@{queue_id}@{group}")


def _position(queue: ConsumeQueue) -> _Position:
    return queue.max_offset, queue.written_size
