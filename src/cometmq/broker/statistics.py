"""How much came in and went out lately, by topic and by group: what `statsAll` and monitors ask for.

Rules kept here:
- Counting costs nothing per message. What came into a topic is the difference of the offsets of its queues;
  what a group got is added once a pull.
- Samples are taken every ten seconds, ten minutes and hour, and kept for a minute, an hour and a day, as
  RocketMQ does. A rate is that of the span between the oldest and the newest sample, so it is 0 until the
  first sample and sinks to 0 a while after the last message.
- Sampling many topics is spread over turns of the event loop.
- Numbers begin at 0 with each start. At most `MOST_GROUPS` pairs of topic and group are told apart; what
  comes beyond that is not counted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from cometmq.store.consume_queue import ConsumeQueue
from cometmq.wire.bodies.stats import BrokerStatsData, BrokerStatsItem

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

SAMPLE_S: Final = 10.0
MOST_GROUPS: Final = 20_000
TOPICS_A_TURN: Final = 500
_MINUTE_SAMPLES: Final = 7
_HOUR_SAMPLES: Final = 7
_DAY_SAMPLES: Final = 25
_TICKS_PER_HOUR_SAMPLE: Final = 60
_TICKS_PER_DAY_SAMPLE: Final = 360

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"


class Window:
    """The samples of one span of time."""

    __slots__ = ("_interval_ms", "_most", "_samples")

    def __init__(self, interval_ms: int, most: int) -> None:
        self._interval_ms = interval_ms
        self._most = most
        self._samples: list[tuple[int, int, int]] = []
        """Moments, and value and times then; a list, as it is short and there are many."""

    def add(self, now_ms: int, value: int, times: int) -> None:
        samples = self._samples
        if not samples:
            samples.append((now_ms - self._interval_ms, 0, 0))
        samples.append((now_ms, value, times))
        if len(samples) > self._most:
            del samples[0]

    def summary(self) -> BrokerStatsItem:
        if not self._samples:
            return BrokerStatsItem()
        (first_ms, first_value, first_times), (last_ms, value, times) = self._samples[0], self._samples[-1]
        amount, adds, elapsed_ms = value - first_value, times - first_times, last_ms - first_ms
        return BrokerStatsItem(
            sum=amount,
            tps=amount * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
            avgpt=amount / adds if adds else 0.0,
        )


class Series:
    """A number that only grows, and how it grew lately."""

    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        """How often something was added."""
        self.minute = Window(10_000, _MINUTE_SAMPLES)
        self.hour = Window(600_000, _HOUR_SAMPLES)
        self.day = Window(3_600_000, _DAY_SAMPLES)

    def add(self, amount: int) -> None:
        self.value += amount
        self.times += 1

    def sample(self, now_ms: int, tick: int) -> None:
        self.minute.add(now_ms, self.value, self.times)
        if tick % _TICKS_PER_HOUR_SAMPLE == 0:
            self.hour.add(now_ms, self.value, self.times)
        if tick % _TICKS_PER_DAY_SAMPLE == 0:
            self.day.add(now_ms, self.value, self.times)

    def summary(self) -> BrokerStatsData:
        return BrokerStatsData(self.minute.summary(), self.hour.summary(), self.day.summary())


class Statistics:
    """The numbers of one broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._queues = state.store.queues.by_topic
        self._ends_at_start: dict[str, int] = {}
        """By topic, the offsets of its queues together when the broker started."""
        self._puts: dict[str, Series] = {}
        self._gets: dict[str, Series] = {}
        self._get_sizes: dict[str, Series] = {}
        self._sent_back: dict[str, Series] = {}
        self._broker_puts = Series()
        self._broker_gets = Series()
        self._tick = 1
        self._left: Iterator[str] = iter(())

    def start(self) -> None:
        """Count from here on; called when the store has recovered."""
        self._ends_at_start = {topic: _end(queues) for topic, queues in self._queues.items()}

    # Counting

    def got(self, topic: str, group: str, messages: int, size: int) -> None:
        """Note that a group was given messages."""
        key = f"{topic}@{group}"
        numbers = self._gets.get(key)
        if numbers is None:
            if len(self._gets) >= MOST_GROUPS:
                return
            numbers = self._gets[key] = Series()
            self._get_sizes[key] = Series()
        numbers.add(messages)
        self._get_sizes[key].add(size)

    def sent_back(self, topic: str, group: str) -> None:
        """Note that a group sent a message back."""
        key = f"{topic}@{group}"
        numbers = self._sent_back.get(key)
        if numbers is None:
            if len(self._sent_back) >= MOST_GROUPS:
                return
            numbers = self._sent_back[key] = Series()
        numbers.add(1)

    def forget_topic(self, topic: str) -> None:
        """A topic is gone: if it comes back, it begins at 0."""
        self._puts.pop(topic, None)
        self._ends_at_start.pop(topic, None)
        for table in (self._gets, self._get_sizes, self._sent_back):
            for key in [key for key in table if key.startswith(f"{topic}@")]:
                del table[key]

    def forget_group(self, group: str) -> None:
        for table in (self._gets, self._get_sizes, self._sent_back):
            for key in [key for key in table if key.endswith(f"@{group}")]:
                del table[key]

    # Sampling

    def sample(self) -> None:
        """Take a sample of everything; called every ten seconds."""
        now_ms, counters = self._state.clock.now_ms(), self._state.counters
        self._broker_puts.value = self._broker_puts.times = counters.put_messages
        self._broker_gets.value = self._broker_gets.times = counters.got_messages
        for series in (self._broker_puts, self._broker_gets):
            series.sample(now_ms, self._tick)
        for table in (self._gets, self._get_sizes, self._sent_back):
            for series in table.values():
                series.sample(now_ms, self._tick)
        self._left = iter(self._state.store.queues.topics())
        self._sample_topics()
        self._tick += 1

    def _sample_topics(self) -> None:
        now_ms, tick = self._state.clock.now_ms(), self._tick
        count = 0
        for topic in islice(self._left, TOPICS_A_TURN):
            count += 1
            series = self._series_of(topic)
            if series is not None:
                series.sample(now_ms, tick)
        if count == TOPICS_A_TURN:
            asyncio.get_running_loop().call_soon(self._sample_topics)

    def _series_of(self, topic: str) -> Series | None:
        """The series of a topic, brought up to date; None if nothing came in since the start."""
        queues = self._queues.get(topic)
        if queues is None:
            return None
        messages = _end(queues) - self._ends_at_start.get(topic, 0)
        series = self._puts.get(topic)
        if series is None:
            if messages <= 0:
                return None
            series = self._puts[topic] = Series()
        series.value = series.times = messages
        return series

    # Asking

    def put_tps(self, topic: str) -> float:
        """How many messages a second came into a topic."""
        series = self._puts.get(topic)
        return 0.0 if series is None else series.minute.summary().tps

    def get_tps(self, group: str, topic: str) -> float:
        """How many messages a second of a topic a group was given."""
        series = self._gets.get(f"{topic}@{group}")
        return 0.0 if series is None else series.minute.summary().tps

    def given(self) -> list[tuple[str, str, int, int]]:
        """What groups were given since the start: topic, group, messages and bytes; for any thread."""
        found = []
        for key, numbers in list(self._gets.items()):
            topic, _, group = key.partition("@")
            sizes = self._get_sizes.get(key)
            found.append((topic, group, numbers.value, 0 if sizes is None else sizes.value))
        return found

    def find(self, name: str, key: str) -> BrokerStatsData | None:
        """The numbers under one of RocketMQ's names; None if there are none."""
        series: Series | None = None
        if name == TOPIC_PUT_NUMS:
            series = self._series_of(key)
        elif name in (BROKER_PUT_NUMS, BROKER_GET_NUMS):
            if key == self._state.config.broker_cluster_name:
                series = self._broker_puts if name == BROKER_PUT_NUMS else self._broker_gets
        else:
            tables = {
                GROUP_GET_NUMS: self._gets,
                GROUP_GET_SIZE: self._get_sizes,
                SNDBCK_PUT_NUMS: self._sent_back,
            }
            series = tables.get(name, {}).get(key)
        return None if series is None else series.summary()


def _end(queues: dict[int, ConsumeQueue]) -> int:
    """How many messages the queues of a topic have had together."""
    return sum([queue.next_offset for queue in queues.values()])
