"""How much each group was given of each topic and each queue lately.

Rules kept here:
- A pull costs one look into a table and three additions; everything else is worked out of that when a sample
  is taken, in pieces of `PLACES_A_TURN`.
- At most `MOST_GROUPS` pairs of topic and group, and `MOST_PLACES` of their queues, are told apart. What is
  given from further queues counts for topic and group together; what is given to further groups is not
  counted here.
- What a group waits for is counted in whole milliseconds. A pull that finds its messages in memory takes less
  than one, so that only the others are timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cometmq.broker.monitor.series import Series

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

MOST_GROUPS: Final = 20_000
MOST_PLACES: Final = 10_000
PLACES_A_TURN: Final = 500
_ANY_QUEUE: Final = -1

Place = tuple[str, str, int]
"""Topic, group and queue id."""


class Given:
    """What a group was given from a queue since the start."""

    __slots__ = ("messages", "size", "times", "waited_ms")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.times = 0
        self.waited_ms = 0

    def add(self, other: Given) -> None:
        self.messages += other.messages
        self.size += other.size
        self.times += other.times
        self.waited_ms += other.waited_ms


class Gets:
    """The same, as it grew lately."""

    __slots__ = ("latencies", "numbers", "sizes")

    def __init__(self) -> None:
        self.numbers = Series()
        self.sizes = Series()
        self.latencies = Series()

    def sample(self, now_ms: int, tick: int, given: Given) -> None:
        self.numbers.sample_as(now_ms, tick, given.messages, given.times)
        self.sizes.sample_as(now_ms, tick, given.size, given.times)
        self.latencies.sample_as(now_ms, tick, given.waited_ms, given.times)


class GetStatistics:
    """The numbers of one broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._given: dict[Place, Given] = {}
        self._pairs: set[tuple[str, str]] = set()
        """The pairs of topic and group that are counted."""
        self.groups: dict[tuple[str, str], Gets] = {}
        """By topic and group, as of the last sample."""
        self.queues: dict[Place, Gets] = {}
        self._forgotten = 0
        """How many messages were given of topics, or to groups, that are gone."""

    # Counting

    def count(self, topic: str, group: str, queue_id: int, messages: int, size: int) -> None:
        """Note that a group was given messages."""
        given = self._given.get((topic, group, queue_id)) or self._find(topic, group, queue_id)
        if given is not None:
            given.messages += messages
            given.size += size
            given.times += 1

    def waited(self, topic: str, group: str, queue_id: int, waited_ms: int) -> None:
        """Note that a group waited so long for what it was given."""
        given = self._find(topic, group, queue_id)
        if given is not None:
            given.waited_ms += waited_ms

    def _find(self, topic: str, group: str, queue_id: int) -> Given | None:
        if (topic, group) not in self._pairs:
            if len(self._pairs) >= MOST_GROUPS:
                return None
            self._pairs.add((topic, group))
        place = (topic, group, queue_id)
        if place not in self._given and len(self._given) >= MOST_PLACES:
            place = (topic, group, _ANY_QUEUE)
        return self._given.setdefault(place, Given())

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group is gone: if it comes back, it begins at 0."""

        def is_gone(key: tuple[str, str] | Place) -> bool:
            return key[0] == topic or key[1] == group

        self._pairs = {pair for pair in self._pairs if not is_gone(pair)}
        for place in [place for place in self._given if is_gone(place)]:
            given = self._given.pop(place)
            self.queues.pop(place, None)
            if not self._state.topics.is_system_topic(place[0]):
                self._forgotten += given.messages
        for pair in [pair for pair in self.groups if is_gone(pair)]:
            del self.groups[pair]

    # Sampling

    def sample(self, now_ms: int, tick: int) -> Iterator[None]:
        """Take a sample of everything, in pieces."""
        together: dict[tuple[str, str], Given] = {}
        tells_queues = self._state.config.enable_detail_stat
        for number, (place, given) in enumerate(list(self._given.items()), 1):
            topic, group, queue_id = place
            together.setdefault((topic, group), Given()).add(given)
            if tells_queues and queue_id != _ANY_QUEUE and place in self._given:
                self.queues.setdefault(place, Gets()).sample(now_ms, tick, given)
            if number % PLACES_A_TURN == 0:
                yield
        for number, (pair, given) in enumerate(together.items(), 1):
            if pair in self._pairs:
                self.groups.setdefault(pair, Gets()).sample(now_ms, tick, given)
            if number % PLACES_A_TURN == 0:
                yield

    # Asking

    def own_messages(self) -> int:
        """How many messages were given of topics that are not the system's."""
        is_system = self._state.topics.is_system_topic
        return self._forgotten + sum(
            given.messages for (topic, *_), given in self._given.items() if not is_system(topic)
        )

    def of_group(self, topic: str, group: str) -> Gets | None:
        """The numbers of a group; those of one that was not sampled yet are 0."""
        found = self.groups.get((topic, group))
        return Gets() if found is None and (topic, group) in self._pairs else found

    def of_queue(self, place: Place) -> Gets | None:
        """The same for one queue."""
        found = self.queues.get(place)
        is_new = found is None and place in self._given and self._state.config.enable_detail_stat
        return Gets() if is_new else found

    def totals(self) -> dict[tuple[str, str], Given]:
        """What groups were given since the start, by topic and group; for any thread."""
        together: dict[tuple[str, str], Given] = {}
        for (topic, group, _), given in list(self._given.items()):
            together.setdefault((topic, group), Given()).add(given)
        return together
