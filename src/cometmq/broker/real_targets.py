"""Targets of delayed, timed and half messages: REAL_TOPIC and REAL_QID, checked.

Delayed and timed messages, and those of open transactions, wait in topics of the broker; two properties name
their topic and queue. The broker writes these properties, but a store may hold records in which somebody else
wrote them.

Rules kept here:
- A message goes to a topic that clients may send to. Only checkpoints and acknowledgements go to the revive
  topic.
- The topic has a legal name, or is one of the broker's. A queue has a number that fits into a record; if the
  topic is there, it is one of its queues, or one that has messages already.
- Everything else is `UnprocessableError`.
"""

from __future__ import annotations

from typing import Final

from cometmq.broker.set_aside import UnprocessableError
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import is_for_clients, refuse_topic
from cometmq.broker.topics.topics import Topics
from cometmq.model.java_numbers import LARGEST_INT, natural_int
from cometmq.model.message_properties import REAL_QUEUE_ID, REAL_TOPIC
from cometmq.model.names import MAX_RETRY_TOPIC_LENGTH, REVIVE_PREFIX
from cometmq.store.message_store import MessageStore
from cometmq.wire.record.codec import Record

MOST_FOUND: Final = 4096
"""The cache is cleared at this size."""
_SHOWN: Final = 60

Target = tuple[str, int]
"""A topic and a queue of it."""


def read_target(topic: str | None, queue_id: str | None) -> Target | None:
    """The target in two properties; None if they name no topic and queue."""
    if not topic or not queue_id or len(topic) > MAX_RETRY_TOPIC_LENGTH or len(queue_id) > _SHOWN:
        return None  # also what would be large to remember
    number = natural_int(queue_id)
    return None if number is None else (topic, number)


def restored(
    waiting: Record,
    topic: str,
    queue_id: int,
    block: bytes,
    *,
    born_host: bytes | None = None,
    is_retry: bool = False,
) -> Record:
    """A message that waited as a new record of a queue; a retry counts as one more attempt to consume it."""
    return Record(
        topic,
        waiting.body,
        block,
        queue_id=queue_id,
        flag=waiting.flag,
        sys_flag=waiting.sys_flag,
        born_timestamp_ms=waiting.born_timestamp_ms,
        born_host=waiting.born_host if born_host is None else born_host,
        reconsume_times=min(waiting.reconsume_times + is_retry, LARGEST_INT),
    )


class RealTargets:
    """Checks targets against the tables of a broker; belongs to the event loop."""

    def __init__(self, settings: Settings, store: MessageStore, topics: Topics) -> None:
        self._topics = topics
        self._queues = store.queues
        self._revive_topic = REVIVE_PREFIX + settings.broker.broker_cluster_name
        self._found: dict[tuple[str | None, str | None, bool], Target] = {}
        """Checked targets, valid as long as no topic changes."""
        self._generation = -1

    def find(self, topic: str | None, queue_id: str | None, *, from_timers: bool = False) -> Target:
        """The topic and the queue that properties name; raises `UnprocessableError`."""
        if self._generation != self._topics.generation or len(self._found) >= MOST_FOUND:
            self._found.clear()
            self._generation = self._topics.generation
        key = topic, queue_id, from_timers
        target = self._found.get(key)
        if target is None:
            target = self._found[key] = self._checked(topic, queue_id, from_timers=from_timers)
        return target

    def _checked(self, topic: str | None, queue_id: str | None, *, from_timers: bool) -> Target:
        target = read_target(topic, queue_id)
        if target is None:
            raise UnprocessableError(
                f"{REAL_TOPIC} {_shown(topic)} and {REAL_QUEUE_ID} {_shown(queue_id)} are no topic and queue"
            )
        name, number = target
        if not is_for_clients(name) and not (from_timers and name == self._revive_topic):
            raise UnprocessableError(f"{REAL_TOPIC} {_shown(name)} is a topic that only the broker writes to")
        known = self._topics.get(name)
        if known is None:
            if refuse_topic(name) is not None:
                raise UnprocessableError(f"{REAL_TOPIC} {_shown(name)} is no legal name of a topic")
        elif (
            number >= max(known.read_queue_nums, known.write_queue_nums)
            and self._queues.find(name, number) is None
        ):
            raise UnprocessableError(f"{REAL_QUEUE_ID} {number} is no queue of topic {name}")
        return target


def _shown(text: str | None) -> str:
    """A text of a peer, as far as a sentence has room for it."""
    if text is None:
        return "(missing)"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)")
