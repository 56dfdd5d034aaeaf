"""How much came in and went out lately, by topic, group and queue: what `statsAll` and monitors ask for.

Rules kept here:
- Names and keys are RocketMQ's. There are no numbers under names that its broker declares and never counts
  (`GROUP_GET_FROM_DISK_*`, `BROKER_GET_FROM_DISK_*`, `DLQ_PUT_NUMS`), that it only logs (`GROUP_GET_FALL_*`),
  or that are made for a commercial service (`COMMERCIAL_*`, `ACCOUNT_*`). There are none of
  `TOPIC_PUT_LATENCY`, whole milliseconds by queue: a message is put in microseconds, which the metrics show.
- Counting costs next to nothing, see `put_statistics.py` and `get_statistics.py`. A sample is taken every ten
  seconds, in small pieces.
- Numbers begin at 0 with each start. There are limits to how many are told apart, and what comes beyond them
  is not counted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from cometmq.broker.monitor.get_statistics import Gets, GetStatistics
from cometmq.broker.monitor.put_statistics import Puts, PutStatistics
from cometmq.broker.monitor.series import Series
from cometmq.model.java_numbers import natural_int
from cometmq.wire.bodies.stats import BrokerStatsData

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

SAMPLE_S: Final = 10.0
MOST_GROUPS: Final = 20_000

_OF_BROKER: Final = (
    "BROKER_PUT_NUMS",
    "BROKER_GET_NUMS",
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC",
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC",
    "BROKER_ACK_NUMS",
    "BROKER_CK_NUMS",
)
_OF_PAIRS: Final = ("SNDBCK_PUT_NUMS", "GROUP_ACK_NUMS", "GROUP_CK_NUMS")

_Find = Callable[[str], Series | None]


class Statistics:
    """The numbers of one broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.puts = PutStatistics(state)
        self.gets = GetStatistics(state)
        self.got: Final = self.gets.count
        self._of_broker = {name: Series() for name in _OF_BROKER}
        self._of_pairs: dict[str, dict[tuple[str, str], Series]] = {name: {} for name in _OF_PAIRS}
        """By name, topic and group."""
        self._acknowledged = self._popped = 0
        self._tick = 1
        self._sampling: Iterator[None] | None = None
        self._find: dict[str, _Find] = {
            "TOPIC_PUT_NUMS": lambda key: _numbers(self.puts.of_topic(key)),
            "TOPIC_PUT_SIZE": lambda key: _sizes(self.puts.of_topic(key)),
            "QUEUE_PUT_NUMS": lambda key: _numbers(self._queue_puts(key)),
            "QUEUE_PUT_SIZE": lambda key: _sizes(self._queue_puts(key)),
            "GROUP_GET_NUMS": lambda key: _numbers(self._group_gets(key)),
            "GROUP_GET_SIZE": lambda key: _sizes(self._group_gets(key)),
            "QUEUE_GET_NUMS": lambda key: _numbers(self._queue_gets(key)),
            "QUEUE_GET_SIZE": lambda key: _sizes(self._queue_gets(key)),
            "GROUP_GET_LATENCY": self._latencies,
        }

    def start(self) -> None:
        """Count from here on; called when the store has recovered."""
        self.puts.start()

    # Counting

    def sent_back(self, topic: str, group: str) -> None:
        """Note that a group sent a message back."""
        self._add("SNDBCK_PUT_NUMS", topic, group, 1)

    def acknowledged(self, topic: str, group: str, messages: int) -> None:
        """Note that a group acknowledged messages that it had popped."""
        self._acknowledged += messages
        self._add("GROUP_ACK_NUMS", topic, group, messages)

    def popped(self, topic: str, group: str) -> None:
        """Note that a checkpoint was written for what a group popped."""
        self._popped += 1
        self._add("GROUP_CK_NUMS", topic, group, 1)

    def _add(self, name: str, topic: str, group: str, amount: int) -> None:
        table = self._of_pairs[name]
        series = table.get((topic, group))
        if series is None:
            if len(table) >= MOST_GROUPS:
                return
            series = table[topic, group] = Series()
        series.add(amount)

    def forget_topic(self, topic: str) -> None:
        """A topic is gone: if it comes back, it begins at 0."""
        self.puts.forget(topic)
        self.gets.forget(topic=topic)
        self._forget(lambda pair: pair[0] == topic)

    def forget_group(self, group: str) -> None:
        self.gets.forget(group=group)
        self._forget(lambda pair: pair[1] == group)

    def _forget(self, is_gone: Callable[[tuple[str, str]], bool]) -> None:
        for table in self._of_pairs.values():
            for pair in [pair for pair in table if is_gone(pair)]:
                del table[pair]

    # Sampling

    def sample(self) -> None:
        """Take a sample of everything; called every ten seconds. One that takes longer is ended first."""
        if self._sampling is None:
            self._sampling = self._sample_all(self._state.clock.now_ms(), self._tick)
            self._tick += 1
            self._go_on()

    def _go_on(self) -> None:
        assert self._sampling is not None
        try:
            next(self._sampling)
        except StopIteration:
            self._sampling = None
        except BaseException:
            self._sampling = None
            raise
        else:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _sample_all(self, now_ms: int, tick: int) -> Iterator[None]:
        for table in self._of_pairs.values():
            for series in table.values():
                series.sample(now_ms, tick)
        yield from self.gets.sample(now_ms, tick)
        yield from self.puts.sample(now_ms, tick)
        counters = self._state.counters
        values = (
            counters.put_messages,
            counters.got_messages,
            self.puts.own_messages(),
            self.gets.own_messages(),
            self._acknowledged,
            self._popped,
        )
        for series, value in zip(self._of_broker.values(), values, strict=True):
            series.sample_as(now_ms, tick, value, 0)  # RocketMQ does not note how often here

    # Asking

    def put_tps(self, topic: str) -> float:
        """How many messages a second came into a topic."""
        puts = self.puts.topics.get(topic)
        return 0.0 if puts is None else puts.numbers.minute.summary().tps

    def get_tps(self, group: str, topic: str) -> float:
        """How many messages a second of a topic a group was given."""
        gets = self.gets.groups.get((topic, group))
        return 0.0 if gets is None else gets.numbers.minute.summary().tps

    def find(self, name: str, key: str) -> BrokerStatsData | None:
        """The numbers under one of RocketMQ's names; None if there are none."""
        find = self._find.get(name)
        series: Series | None = None
        if find is not None:
            series = find(key)
        elif name in self._of_broker:
            series = self._of_broker[name] if key == self._state.config.broker_cluster_name else None
        elif name in self._of_pairs:
            topic, _, group = key.partition("@")
            series = self._of_pairs[name].get((topic, group))
        return None if series is None else series.summary()

    def _queue_puts(self, key: str) -> Puts | None:
        topic, _, queue_id = key.partition("@")
        number = natural_int(queue_id)
        return None if number is None else self.puts.of_queue(topic, number)

    def _group_gets(self, key: str) -> Gets | None:
        topic, _, group = key.partition("@")
        return self.gets.of_group(topic, group)

    def _queue_gets(self, key: str) -> Gets | None:
        topic, _, rest = key.partition("@")
        queue_id, _, group = rest.partition("@")
        number = natural_int(queue_id)
        return None if number is None else self.gets.of_queue((topic, group, number))

    def _latencies(self, key: str) -> Series | None:
        """With queues told apart the key begins with the number of one."""
        gets = self._group_gets(key)
        if self._state.config.enable_detail_stat:
            queue_id, _, rest = key.partition("@")
            topic, _, group = rest.partition("@")
            gets = self._queue_gets(f"{topic}@{queue_id}@{group}")
        return None if gets is None else gets.latencies


def _numbers(counted: Puts | Gets | None) -> Series | None:
    return None if counted is None else counted.numbers


def _sizes(counted: Puts | Gets | None) -> Series | None:
    return None if counted is None else counted.sizes
