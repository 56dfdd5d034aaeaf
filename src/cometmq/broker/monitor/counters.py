"""What came into which topic, and how long things took: the counters behind the metrics of a broker.

Rules kept here:
- Messages that came in one go are counted in one go; of their sizes the average counts.
- A kind is told apart where a send shows it anyway. A plain message is of the kind that its topic is for.
- At most `MOST_TOPICS` topics, or pairs of topic and kind, and `MOST_GROUPS` of topic and group, are told
  apart. What comes beyond is counted under the topic `OTHERS`, so that the sums stay right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from cometmq.broker.send.put_times import PutTimes
from cometmq.model.histogram import Histogram

MOST_TOPICS: Final = 20_000
MOST_GROUPS: Final = 20_000
OTHERS: Final = "others"

PLAIN: Final = ""
FIFO: Final = "fifo"
NORMAL: Final = "normal"
DELAYED: Final = "delay"
TRANSACTION: Final = "transaction"

SIZE_BOUNDS: Final = (1024, 4096, 524_288, 1_048_576, 2_097_152, 4_194_304)
"""The same as RocketMQ's."""
APPEND_BOUNDS_S: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0),
)
COMMIT_BOUNDS_S: Final = (5, 60, 600, 3600, 43_200, 86_400)
DELAY_BOUNDS_S: Final = (60, 600, 3600, 43_200, 86_400, 259_200)
CREATION_BOUNDS_MS: Final = (10, 100, 1000, 3000, 5000)
"""These, too."""
SUCCESS: Final = "success"
FAILURE: Final = "failure"


class CreationTimes:
    """How long it took administrators to make or change something, in milliseconds."""

    def __init__(self) -> None:
        self.times: dict[tuple[str, bool], Histogram] = {}
        """By how it ended, and whether it is one of the system's."""

    @contextmanager
    def measured(self, *, is_system: bool = False) -> Iterator[None]:
        """What is done in here makes or changes something, unless it raises."""
        started, ending = perf_counter(), FAILURE
        try:
            yield
            ending = SUCCESS
        finally:
            times = self.times.setdefault((ending, is_system), Histogram(CREATION_BOUNDS_MS))
            times.observe((perf_counter() - started) * 1000)


class Traffic:
    """The counters of one broker; belongs to the event loop, others read copies."""

    def __init__(self, *, puts_wait: bool = False) -> None:
        """With `puts_wait` a message is put when it is on the disk, and is counted in `put_times` then."""
        self._puts_wait = puts_wait
        self.put_times = PutTimes()
        self.longest_get_s = 0.0
        """How long a consumer's read took, at most, since the start."""
        self.sizes: dict[tuple[str, str], Histogram] = {}
        """By topic and kind, the sizes of messages in the log: how many, and how much together."""
        self.append_times = Histogram(APPEND_BOUNDS_S)
        """How long it took to put what came in one go, in seconds."""
        self.dead_letters: dict[tuple[str, str], int] = {}
        """By topic and group."""
        self.commit_times: dict[str, Histogram] = {}
        """By topic, how long transactions that succeeded were open, in seconds."""
        self.delays: dict[str, Histogram] = {}
        """By topic, for how long messages with a delivery time are put aside, in seconds."""
        self.topic_creations = CreationTimes()
        self.group_creations = CreationTimes()

    def took(self, topic: str, messages: int, size: int, seconds: float, kind: str = PLAIN) -> None:
        """Messages of a topic were put that have this size together; putting them took so long."""
        self.appended(seconds, messages)
        self.took_of(topic, kind, messages, size)

    def appended(self, seconds: float, messages: int) -> None:
        """Messages were put in one go."""
        self.append_times.observe(seconds)
        if not self._puts_wait:
            self.put_times.took(seconds, messages)

    def took_of(self, topic: str, kind: str, messages: int, size: int) -> None:
        """The same of one topic among others, whose messages were put together."""
        self.sizes_of(topic, kind).observe(size / messages, messages)

    def sizes_of(self, topic: str, kind: str) -> Histogram:
        """Where messages of a topic are counted, for who counts many of them."""
        sizes = self.sizes.get((topic, kind))
        if sizes is None:
            if len(self.sizes) >= MOST_TOPICS:
                topic = OTHERS
            sizes = self.sizes.setdefault((topic, kind), Histogram(SIZE_BOUNDS))
        return sizes

    def committed(self, topic: str, open_ms: int) -> None:
        """A transaction succeeded that was open so long."""
        _times_of(self.commit_times, topic, COMMIT_BOUNDS_S).observe(open_ms // 1000)

    def delayed(self, topic: str, delay_ms: int) -> None:
        """A message was put aside for so long."""
        _times_of(self.delays, topic, DELAY_BOUNDS_S).observe(delay_ms // 1000)

    def gave_up(self, topic: str, group: str) -> None:
        """A group gave a message of a topic up."""
        key = (topic, group)
        if key not in self.dead_letters and len(self.dead_letters) >= MOST_GROUPS:
            key = (OTHERS, group) if (OTHERS, group) in self.dead_letters else (OTHERS, OTHERS)
        self.dead_letters[key] = self.dead_letters.get(key, 0) + 1


def _times_of(table: dict[str, Histogram], topic: str, bounds: Sequence[float]) -> Histogram:
    times = table.get(topic)
    if times is None:
        if len(table) >= MOST_TOPICS:
            topic = OTHERS
        times = table.setdefault(topic, Histogram(bounds))
    return times
