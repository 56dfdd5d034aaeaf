"""What grows: topics, connections, the backlog. Each class brings a broker to a size and has its requests.

Rules kept here:

- The number in flight and the messages that pulls read are the same at all sizes; only the size changes.
- A broker only grows: each size starts from the one before it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bench.broker.contest import Contestant, Load
from bench.broker.load import (
    BATCH,
    BODY,
    PULL_MESSAGE,
    QUEUES,
    SEND_MESSAGE_V2,
    create_topic,
    pull_fields,
    pull_frames,
    queue_ends,
    send_fields,
    send_frames,
)
from bench.growth.load import batch_frame, create_topics, fill_to, send_all
from bench.load.frames import json_request

SENT, KEPT = "bench-sent", "bench-kept"
IN_FLIGHT, IN_TURN = 64, 16
SENDS, PULLS = Load("sends", 4, 16), Load("pulls of 32", 4, 4, messages=BATCH)
MIXED = Load("sends, another topic each time", 4, 16)
SAME_IN_A_ROW = 8
PULLED_BATCHES = 64
SMALLEST_BACKLOG = PULLED_BATCHES * BATCH * QUEUES
"""What the pulls read, at all sizes."""


@dataclass(frozen=True, slots=True)
class Task:
    """A load with its frames."""

    load: Load
    frames: Sequence[bytes]


class Kind(Protocol):
    """Something that grows."""

    over: str
    sizes: Sequence[int]
    settings: dict[str, str]
    starts: bool
    """Whether a start takes longer the more there is."""

    def grow(self, contestant: Contestant, size: int) -> None:
        """Bring a broker to this size."""

    def tasks(self, contestant: Contestant, size: int) -> list[Task]:
        """What a broker of this size is asked."""


@dataclass
class Topics:
    """Sends and pulls that go to one topic after the other, one queue each."""

    sizes: Sequence[int]
    over: str = "topics"
    settings: dict[str, str] = field(default_factory=lambda: {"mappedFileSizeConsumeQueue": "600000"})
    starts: bool = False

    _grown: set[tuple[Contestant, int]] = field(default_factory=set)

    def grow(self, contestant: Contestant, size: int) -> None:
        """The smallest has the topics of the next size, too, for what only that one is asked."""
        if (contestant, size) in self._grown:
            return
        self._grown.add((contestant, size))
        if size == self.sizes[0]:
            self.grow(contestant, self.sizes[1])
        topics = self._topics(size)
        create_topics(contestant.address, topics)
        frames = [batch_frame(topic, 0, BATCH) for topic in topics]
        send_all(contestant.address, frames * self._batches(size))
        last = topics[-1]
        fill_to(contestant.address, last, BATCH * self._batches(size), queues=1)

    def tasks(self, contestant: Contestant, size: int) -> list[Task]:
        topics, born_ms = self._topics(size), int(time.time() * 1000)
        places = [(topic, batch) for batch in range(self._batches(size)) for topic in topics]
        mixed = [
            json_request(SEND_MESSAGE_V2, send_fields(topic, number, 0, born_ms), BODY)
            for number, (topic, _) in enumerate(places)
        ]
        in_rows = [frame for frame in mixed for _ in range(SAME_IN_A_ROW)]
        pulls = [json_request(PULL_MESSAGE, pull_fields(topic, 0, batch * BATCH)) for topic, batch in places]
        tasks = [Task(SENDS, in_rows), Task(PULLS, pulls)]
        # With one topic there is no other: all that comes together is put together.
        return tasks if size == 1 else [*tasks, Task(MIXED, mixed)]

    def _topics(self, size: int) -> list[str]:
        return [f"bench-{size:05}-{number:05}" for number in range(size)]

    def _batches(self, size: int) -> int:
        """As many messages in all at every size."""
        return self.sizes[-1] // size


@dataclass
class Connections:
    """Requests over one connection beside idle ones, and over all of them in turn."""

    sizes: Sequence[int]
    over: str = "connections"
    settings: dict[str, str] = field(default_factory=dict)
    starts: bool = False

    def grow(self, contestant: Contestant, size: int) -> None:
        if size == self.sizes[0]:
            for topic in (SENT, KEPT):
                create_topic(contestant.address, contestant.namesrv, topic)
            fill_to(contestant.address, KEPT, SMALLEST_BACKLOG)

    def tasks(self, contestant: Contestant, size: int) -> list[Task]:
        sends, pulls = send_frames(SENT), pull_frames(KEPT, PULLED_BATCHES)
        tasks = [Task(Load("sends on one beside idle ones", 1, IN_FLIGHT, idle=size - 1), sends)]
        # On few connections several requests would come together, which is cheaper and another story.
        if size > 2 * IN_TURN:
            in_turn = Load("sends on all in turn", size, IN_TURN, in_turn=True)
            tasks.append(Task(in_turn, sends))
            in_turn = Load("pulls of 32 on all in turn", size, IN_TURN, messages=BATCH, in_turn=True)
            tasks.append(Task(in_turn, pulls))
        return tasks


@dataclass
class Backlog:
    """Sends and pulls, at the start and at the end of a topic that has more and more messages."""

    sizes: Sequence[int]
    over: str = "messages in the store"
    settings: dict[str, str] = field(default_factory=dict)
    starts: bool = True

    def grow(self, contestant: Contestant, size: int) -> None:
        if size == self.sizes[0]:
            for topic in (SENT, KEPT):
                create_topic(contestant.address, contestant.namesrv, topic)
        fill_to(contestant.address, KEPT, size)

    def tasks(self, contestant: Contestant, size: int) -> list[Task]:
        ends = queue_ends(contestant.address, KEPT)
        first = [end - PULLED_BATCHES * BATCH for end in ends]
        at_end = [
            json_request(PULL_MESSAGE, pull_fields(KEPT, queue_id, first[queue_id] + batch * BATCH))
            for batch in range(PULLED_BATCHES)
            for queue_id in range(QUEUES)
        ]
        from_start, to_end = ("pulls of 32 from the start", "pulls of 32 at the end")
        return [
            Task(SENDS, send_frames(SENT)),
            Task(Load(from_start, 4, 4, messages=BATCH), pull_frames(KEPT, PULLED_BATCHES)),
            Task(Load(to_end, 4, 4, messages=BATCH), at_end),
        ]
