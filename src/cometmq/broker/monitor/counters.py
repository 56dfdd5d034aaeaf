"""Counts of one broker: messages in, messages out, and how long that took.

This is the one table in which messages are counted. `statsAll` (`statistics.py`), `brokerStatus`
(`runtime_info.py`) and the Prometheus metrics (`exporter.py`) read it.

Rules kept here:
- Messages that came in one group append are counted together, with their average size.
- A send shows whether a message is delayed or of a transaction. A plain message has the type of its topic.
- What a group was given costs one look into a table: `delivered` has it by topic, group and queue.
- At most `MOST_TOPICS` topics, or pairs of topic and message type, and `MOST_GROUPS` pairs of topic and group
  are told apart. Further ones are counted under the topic `OTHERS`, so that the sums stay right. Deliveries,
  acknowledgements, checkpoints and messages sent back of further pairs count in the totals only.
- `TopicCounts` are gauges that outlive a restart: waiting timers, open transactions. After a kill they may be
  off by what happened since they were last saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from cometmq.broker.monitor.put_times import PutTimes
from cometmq.model.histogram import Histogram
from cometmq.model.topic import DataVersion
from cometmq.ports.clock import Clock
from cometmq.store.tables.tables import Metric

MOST_TOPICS: Final = 20_000
MOST_GROUPS: Final = 20_000
MOST_DELIVERED_QUEUES: Final = 10_000
"""Deliveries from further queues count for their topic and group together."""
ANY_QUEUE: Final = -1
OTHERS: Final = "others"

PLAIN: Final = ""
FIFO: Final = "fifo"
NORMAL: Final = "normal"
DELAYED: Final = "delay"
TRANSACTION: Final = "transaction"

SIZE_BOUNDS: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""The bounds of RocketMQ, like those of commits, delays and creations below."""
APPEND_BOUNDS_S: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0),
)
COMMIT_BOUNDS_S: Final = (5, 60, 600, 3600, 43_200, 86_400)
DELAY_BOUNDS_S: Final = (60, 600, 3600, 43_200, 86_400, 259_200)
CREATION_BOUNDS_MS: Final = (10, 100, 1000, 3000, 5000)
SUCCESS: Final = "success"
FAILURE: Final = "failure"

TopicGroup = tuple[str, str]
TopicGroupQueue = tuple[str, str, int]


@dataclass(slots=True)
class Amount:
    """How many messages there were since the start, and in how many calls."""

    messages: int = 0
    size: int = 0
    times: int = 0
    waited_ms: int = 0

    def add(self, other: Amount) -> None:
        self.messages += other.messages
        self.size += other.size
        self.times += other.times
        self.waited_ms += other.waited_ms


class CreationTimes:
    """How long it took administrators to make or change something, in milliseconds."""

    def __init__(self) -> None:
        self.times: dict[tuple[str, bool], Histogram] = {}
        """By outcome, and whether it belongs to the system."""

    @contextmanager
    def measured(self, *, is_system: bool = False) -> Iterator[None]:
        """Time the block; it failed if it raises."""
        started, outcome = perf_counter(), FAILURE
        try:
            yield
            outcome = SUCCESS
        finally:
            times = self.times.setdefault((outcome, is_system), Histogram(CREATION_BOUNDS_MS))
            times.observe((perf_counter() - started) * 1000)


class Traffic:
    """The counters of one broker; belongs to the event loop, others read copies."""

    def __init__(self, *, puts_wait: bool = False) -> None:
        """With `puts_wait` a message is put when it is on the disk, and is counted in `put_times` then."""
        self._puts_wait = puts_wait
        self.put_messages = 0
        self.put_bytes = 0
        self.put_failures = 0
        self.got_messages = 0
        self.got_bytes = 0
        self.found_pulls = 0
        """Pulls and pops that were given messages."""
        self.missed_pulls = 0
        self.sent_back_messages = 0
        self.delayed_messages = 0
        """Messages of delay levels that were delivered."""
        self.acknowledged_messages = 0
        self.checkpoints = 0
        self.put_times = PutTimes()
        self.longest_get_s = 0.0
        """How long a consumer's read took, at most, since the start."""
        self.sizes: dict[tuple[str, str], Histogram] = {}
        """By topic and message type: the sizes of messages in the log."""
        self.append_times = Histogram(APPEND_BOUNDS_S)
        """How long a group append took, in seconds."""
        self.delivered: dict[TopicGroupQueue, Amount] = {}
        """Messages that each group was given from each queue."""
        self.delivered_pairs: set[TopicGroup] = set()
        """The pairs of topic and group that `delivered` has."""
        self.sent_back: dict[TopicGroup, Amount] = {}
        self.acknowledged: dict[TopicGroup, Amount] = {}
        self.popped: dict[TopicGroup, Amount] = {}
        """Checkpoints that were written for popped messages."""
        self.dead_letters: dict[TopicGroup, int] = {}
        self.commit_times: dict[str, Histogram] = {}
        """By topic: how long committed transactions were open, in seconds."""
        self.delays: dict[str, Histogram] = {}
        """By topic: for how long messages with a delivery time wait, in seconds."""
        self.topic_creations = CreationTimes()
        self.group_creations = CreationTimes()

    # Messages in

    def took(self, topic: str, messages: int, size: int, seconds: float, message_type: str = PLAIN) -> None:
        """Messages of a topic with this total size were put in this time."""
        self.appended(seconds, messages)
        self.took_of(topic, message_type, messages, size)

    def appended(self, seconds: float, messages: int) -> None:
        """Messages were put in one group append."""
        self.append_times.observe(seconds)
        if not self._puts_wait:
            self.put_times.took(seconds, messages)

    def took_of(self, topic: str, message_type: str, messages: int, size: int) -> None:
        """Count the messages of one topic in a group append of several."""
        self.sizes_of(topic, message_type).observe(size / messages, messages)

    def sizes_of(self, topic: str, message_type: str) -> Histogram:
        """Where messages of a topic are counted, for callers that count many of them."""
        sizes = self.sizes.get((topic, message_type))
        if sizes is None:
            if len(self.sizes) >= MOST_TOPICS:
                topic = OTHERS
            sizes = self.sizes.setdefault((topic, message_type), Histogram(SIZE_BOUNDS))
        return sizes

    def committed(self, topic: str, open_ms: int) -> None:
        """A transaction that was open for this time was committed."""
        _times_of(self.commit_times, topic, COMMIT_BOUNDS_S).observe(open_ms // 1000)

    def delayed(self, topic: str, delay_ms: int) -> None:
        """A message waits this time for its delivery."""
        _times_of(self.delays, topic, DELAY_BOUNDS_S).observe(delay_ms // 1000)

    def gave_up(self, topic: str, group: str) -> None:
        """A message of a topic became a dead letter of a group."""
        key = (topic, group)
        if key not in self.dead_letters and len(self.dead_letters) >= MOST_GROUPS:
            key = (OTHERS, group) if (OTHERS, group) in self.dead_letters else (OTHERS, OTHERS)
        self.dead_letters[key] = self.dead_letters.get(key, 0) + 1

    # Messages out

    def got(self, topic: str, group: str, queue_id: int, messages: int, size: int) -> None:
        """A pull or a pop gave messages to a group."""
        self.found_pulls += 1
        self.got_messages += messages
        self.got_bytes += size
        amount = self.delivered.get((topic, group, queue_id)) or self._delivered(topic, group, queue_id)
        if amount is not None:
            amount.messages += messages
            amount.size += size
            amount.times += 1

    def waited(self, topic: str, group: str, queue_id: int, waited_ms: int) -> None:
        """A group waited this time for the disk; pulls from memory take less than 1 ms and are not timed."""
        amount = self._delivered(topic, group, queue_id)
        if amount is not None:
            amount.waited_ms += waited_ms

    def _delivered(self, topic: str, group: str, queue_id: int) -> Amount | None:
        if (topic, group) not in self.delivered_pairs:
            if len(self.delivered_pairs) >= MOST_GROUPS:
                return None
            self.delivered_pairs.add((topic, group))
        key = (topic, group, queue_id)
        if key not in self.delivered and len(self.delivered) >= MOST_DELIVERED_QUEUES:
            key = (topic, group, ANY_QUEUE)
        return self.delivered.setdefault(key, Amount())

    def delivered_by_group(self) -> dict[TopicGroup, Amount]:
        """Messages given since the start, by topic and group; for any thread."""
        together: dict[TopicGroup, Amount] = {}
        for (topic, group, _), amount in list(self.delivered.items()):
            together.setdefault((topic, group), Amount()).add(amount)
        return together

    def note_sent_back(self, topic: str, group: str) -> None:
        """A group sent a message back."""
        self.sent_back_messages += 1
        _add(self.sent_back, topic, group, 1)

    def note_acknowledged(self, topic: str, group: str, messages: int) -> None:
        """A group acknowledged popped messages."""
        self.acknowledged_messages += messages
        _add(self.acknowledged, topic, group, messages)

    def note_popped(self, topic: str, group: str) -> None:
        """A checkpoint was written for what a group popped."""
        self.checkpoints += 1
        _add(self.popped, topic, group, 1)

    def forget(
        self, *, topic: str | None = None, group: str | None = None
    ) -> list[tuple[TopicGroupQueue, Amount]]:
        """Forget a deleted topic or group, and return its deliveries; if it comes back, it begins at 0."""

        def is_gone(key: tuple[str, ...] | TopicGroupQueue) -> bool:
            return key[0] == topic or key[1] == group

        self.delivered_pairs = {pair for pair in self.delivered_pairs if not is_gone(pair)}
        for table in (self.sent_back, self.acknowledged, self.popped):
            for pair in [pair for pair in table if is_gone(pair)]:
                del table[pair]
        return [(key, self.delivered.pop(key)) for key in list(self.delivered) if is_gone(key)]


def _add(table: dict[TopicGroup, Amount], topic: str, group: str, messages: int) -> None:
    amount = table.get((topic, group))
    if amount is None:
        if len(table) >= MOST_GROUPS:
            return
        amount = table[topic, group] = Amount()
    amount.messages += messages
    amount.times += 1


def _times_of(table: dict[str, Histogram], topic: str, bounds: Sequence[float]) -> Histogram:
    times = table.get(topic)
    if times is None:
        if len(table) >= MOST_TOPICS:
            topic = OTHERS
        times = table.setdefault(topic, Histogram(bounds))
    return times


class TopicCounts:
    """Gauges by topic that are saved: waiting timers, open transactions; belongs to the event loop.

    Each says when it last changed, and the version how often any did.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts: dict[str, Metric] = {}
        """By topic."""
        self._version = DataVersion(0, clock.now_ms(), 0)
        self._changes = 0

    @property
    def is_dirty(self) -> bool:
        """Whether something changed since it was last copied."""
        return self._changes > 0

    @property
    def total(self) -> int:
        return sum(metric.count for metric in self.counts.values())

    def load(self, version: DataVersion | None, counts: Mapping[str, Metric]) -> None:
        """Take over what was saved."""
        self.counts = dict(counts)
        self._version = version or self._version

    def copy(self) -> tuple[DataVersion, dict[str, Metric]]:
        """The version and the numbers, as they are to be saved."""
        if self._changes:
            self._version = self._version.after(self._clock.now_ms(), self._changes)
            self._changes = 0
        return self._version, {
            topic: Metric(each.count, each.time_stamp) for topic, each in self.counts.items()
        }

    def add(self, topic: str, change: int) -> None:
        """Change the number of a topic."""
        metric = self.counts.get(topic)
        if metric is None:
            metric = self.counts[topic] = Metric()
        metric.count += change
        metric.time_stamp = self._clock.now_ms()
        self._changes += 1

    def clear(self) -> None:
        """Correct what a kill left behind: it is known that nothing is left."""
        for topic, metric in self.counts.items():
            if metric.count:
                self.add(topic, -metric.count)
