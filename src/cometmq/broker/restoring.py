"""Where a message belongs that waited elsewhere: what its properties say, and whether that can be believed.

Delayed and timed messages, and those of open transactions, wait in topics of the broker, and say in two
properties which topic and which queue they go to. The broker writes these properties; a store may hold
records, all the same, in which somebody else wrote them.

Rules kept here:
- A message goes to a topic that clients may send to. Only what the timers keep for popping goes to the revive
  topic.
- The topic has a legal name, or is one of the broker's. A queue has a number that fits into a record; if the
  topic is there, it is one of its queues, or one that has messages already.
- Everything else is `UnprocessableError`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cometmq.broker.set_aside import UnprocessableError
from cometmq.broker.topic_names import (
    MAX_RETRY_TOPIC_LENGTH,
    REVIVE_PREFIX,
    is_for_clients,
    refuse_topic,
)
from cometmq.model.java_numbers import natural_int
from cometmq.model.message_properties import REAL_QUEUE_ID, REAL_TOPIC

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

_SHOWN: Final = 60

Target = tuple[str, int]
"""A topic and a queue of it."""


def read_target(topic: str | None, queue_id: str | None) -> Target | None:
    """What two properties say; None if they say nothing that could be a place in a store."""
    if not topic or not queue_id or len(topic) > MAX_RETRY_TOPIC_LENGTH or len(queue_id) > _SHOWN:
        return None
    return _read_short(topic, queue_id)


@lru_cache(4096)
def _read_short(topic: str, queue_id: str) -> Target | None:
    number = natural_int(queue_id)
    return None if number is None else (topic, number)


class RestoreTargets:
    """Checks targets against the tables of a broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._topics = state.topics
        self._queues = state.store.queues
        self._revive_topic = REVIVE_PREFIX + state.config.broker_cluster_name

    def find(self, topic: str | None, queue_id: str | None, *, from_timers: bool = False) -> Target:
        """The topic and the queue that properties name; raises `UnprocessableError`."""
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
            refusal = refuse_topic(name)
            if refusal is not None:
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
