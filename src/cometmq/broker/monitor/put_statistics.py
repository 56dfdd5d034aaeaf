"""How much came into each topic and each queue lately.

Rules kept here:
- Where messages are put, queues add up how large they are. How many came follows from the offsets.
- A sample is taken in small pieces, between which everybody else gets a turn: about `TOPICS_A_TURN` topics
  each. What came meanwhile is part of the sample, or of the next one.
- Queues are told apart with `enableDetailStat` only, and at most `MOST_QUEUES` of them; of others there are
  no numbers, but those of their topics are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cometmq.broker.monitor.series import Series
from cometmq.store.queue.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

MOST_QUEUES: Final = 5_000
TOPICS_A_TURN: Final = 500

Counted = tuple[int, int]
"""Up to which offset of a queue messages are counted, and up to which size."""
_NOTHING: Final[Counted] = (0, 0)


class Puts:
    """What came into a topic, or into one of its queues."""

    __slots__ = ("numbers", "sizes")

    def __init__(self) -> None:
        self.numbers = Series()
        self.sizes = Series()

    def add(self, messages: int, size: int) -> None:
        self.numbers.value += messages
        self.sizes.value += size
        self.numbers.times += messages
        self.sizes.times += messages

    def sample(self, now_ms: int, tick: int) -> None:
        self.numbers.sample(now_ms, tick)
        self.sizes.sample(now_ms, tick)


class PutStatistics:
    """The numbers of one broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._queues = state.store.queues.by_topic
        self._counted: dict[str, dict[int, Counted]] = {}
        """By topic and queue id, what is counted, or came before the start."""
        self.topics: dict[str, Puts] = {}
        """Those that something came into since the start."""
        self.queues: dict[tuple[str, int], Puts] = {}
        self._forgotten = 0
        """How many messages came into topics that are gone."""

    def start(self) -> None:
        """Count from here on; called when the store has recovered."""
        for topic, queues in self._queues.items():
            ends = {queue_id: _counted(queue) for queue_id, queue in queues.items() if queue.max_offset}
            if ends:
                self._counted[topic] = ends

    def forget(self, topic: str) -> None:
        """A topic is gone: if it comes back, it begins at 0."""
        self._counted.pop(topic, None)
        puts = self.topics.pop(topic, None)
        if puts is not None and not self._state.topics.is_system_topic(topic):
            self._forgotten += puts.numbers.value
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]

    # Sampling

    def sample(self, now_ms: int, tick: int) -> Iterator[None]:
        """Take a sample of everything, in pieces."""
        for number, topic in enumerate(list(self._queues), 1):
            if topic in self._queues:  # and was not deleted meanwhile
                self._count(topic)
            puts = self.topics.get(topic)
            if puts is not None:
                puts.sample(now_ms, tick)
            if number % TOPICS_A_TURN == 0:
                yield
        for number, puts in enumerate(list(self.queues.values()), 1):
            puts.sample(now_ms, tick)
            if number % TOPICS_A_TURN == 0:
                yield

    def _count(self, topic: str) -> None:
        """Count what is new in a topic."""
        counted = self._counted.get(topic)
        for queue_id, queue in self._queues[topic].items():
            begin, size = _NOTHING if counted is None else counted.get(queue_id, _NOTHING)
            if queue.max_offset == begin:
                continue
            if counted is None:
                counted = self._counted[topic] = {}
            counted[queue_id] = _counted(queue)
            # A queue of a slave may have been cut; one may have lost files that were never counted.
            count = queue.max_offset - max(min(begin, queue.max_offset), queue.min_offset)
            if count:
                self._add(topic, queue, count, queue.written_size - size)

    def _add(self, topic: str, queue: ConsumeQueue, count: int, size: int) -> None:
        puts = self.topics.get(topic)
        if puts is None:
            puts = self.topics[topic] = Puts()
        puts.add(count, size)
        detail = self._detail(topic, queue.queue_id)
        if detail is not None:
            detail.add(count, size)

    def _detail(self, topic: str, queue_id: int) -> Puts | None:
        if not self._state.config.enable_detail_stat:
            return None
        puts = self.queues.get((topic, queue_id))
        if puts is None and len(self.queues) < MOST_QUEUES:
            puts = self.queues[topic, queue_id] = Puts()
        return puts

    # Asking

    def own_messages(self) -> int:
        """How many messages came into topics that are not the system's."""
        is_system = self._state.topics.is_system_topic
        return self._forgotten + sum(
            puts.numbers.value for topic, puts in self.topics.items() if not is_system(topic)
        )

    def of_topic(self, topic: str) -> Puts | None:
        """The numbers of a topic; those of one that was not sampled yet are 0."""
        found = self.topics.get(topic)
        return Puts() if found is None and self._is_new(topic) else found

    def of_queue(self, topic: str, queue_id: int) -> Puts | None:
        """The same for one queue."""
        found = self.queues.get((topic, queue_id))
        is_new = found is None and self._state.config.enable_detail_stat and self._is_new(topic, queue_id)
        return Puts() if is_new else found

    def _is_new(self, topic: str, queue_id: int | None = None) -> bool:
        counted = self._counted.get(topic, {})
        return any(
            queue.max_offset > counted.get(number, _NOTHING)[0]
            for number, queue in self._queues.get(topic, {}).items()
            if queue_id in (None, number)
        )


def _counted(queue: ConsumeQueue) -> Counted:
    return queue.max_offset, queue.written_size
