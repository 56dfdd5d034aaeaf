"""Pop retries: unacknowledged messages of a checkpoint go into the retry topic of their group.

Rules kept here:
- A message comes back with its body, its properties and one more attempt; the first time it notes when it was
  popped. It waits for nothing but a consumer, whatever delay it had before.
- The retry topic is on the disk before a message is in it: nobody would read it otherwise after a crash.
- A message that is not in the store any more, or that nobody wants any more, is done.
- A message that can never be put, because it is too large with what is added to it for example, is set aside:
  it stays where it was popped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.pop.handles import normal_topic, retry_topic_of
from cometmq.broker.pop.in_flight import InFlight
from cometmq.broker.pop.revive_topic import ReviveTopic, ack_of
from cometmq.broker.real_targets import restored
from cometmq.broker.saved_tables import SavedTable
from cometmq.broker.send.properties import stored_block
from cometmq.broker.set_aside import POPS, SetAside, UnprocessableError, check_put, is_passing
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import refuse_topic
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import CometError
from cometmq.model.message_properties import FIRST_POP_TIME
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.tables import TopicTable
from cometmq.wire.bodies.pop import Checkpoint
from cometmq.wire.record.codec import Record, decode_record

log = logging.getLogger("cometmq.broker")


class Outcome(Enum):
    """How a revived checkpoint ended."""

    DONE = "done"
    LATER = "later"
    COLD = "cold"
    """Its messages have to be brought into memory first."""


@dataclass(eq=False, repr=False)
class RetryWriter:
    """Brings back messages; belongs to the event loop."""

    _settings: Settings
    _store: MessageStore
    _topics: Topics
    _topic_file: SavedTable[TopicTable]
    _groups: Groups
    _offsets: ConsumerOffsets
    _set_aside: SetAside
    _revive_topic: ReviveTopic
    _in_flight: InFlight

    def __post_init__(self) -> None:
        self.on_ready: Callable[[], object] | None = None
        """Called when a retry topic that was made is on the disk."""
        self._unsaved_topics: set[str] = set()
        self.revived = 0
        """How many messages were brought back since the start."""

    def revive(self, checkpoint: Checkpoint, revive_queue: int, *, is_fetched: bool) -> Outcome:
        """Bring back what is not acknowledged; raises `UnprocessableError` if there is nowhere to put it."""
        topic, group = checkpoint.topic or "", checkpoint.group or ""
        if self._topics.get(normal_topic(topic, group)) is None or self._groups.find(group) is None:
            log.warning("checkpoint %s of %s is dropped: its topic or group is gone", topic, group)
            return Outcome.DONE
        retry_topic = retry_topic_of(topic, group, self._settings.broker)
        refusal = refuse_topic(retry_topic.replace("+", "_"))
        if refusal is not None:
            raise UnprocessableError(f"its messages have no retry topic: {refusal}")
        if not self._is_ready(retry_topic, group):
            return Outcome.LATER
        left = [index for index in range(checkpoint.count) if not checkpoint.bits >> index & 1]
        if not is_fetched and any(self._is_cold(checkpoint, index) for index in left):
            return Outcome.COLD
        done: list[int] = []
        outcome = Outcome.DONE
        for index in left:
            offset = checkpoint.offset_of(index)
            try:
                if not self._bring_back(checkpoint, offset, retry_topic):
                    outcome = Outcome.LATER
                    break
            except (CometError, ValueError) as error:
                if is_passing(error):
                    raise
                self._set_aside.add_entry(POPS, topic, checkpoint.queue_id, offset, error)
            checkpoint.bits |= 1 << index
            done.append(offset)
        if done:
            self._acknowledge(checkpoint, done, revive_queue)
            self._in_flight.remove(topic, group, checkpoint.queue_id, len(done), checkpoint.pop_time_ms)
        return outcome

    async def fetch(self, checkpoint: Checkpoint) -> None:
        """Bring the messages of a checkpoint into memory."""
        for index in range(checkpoint.count):
            if not checkpoint.bits >> index & 1:
                offset = checkpoint.offset_of(index)
                await self._store.get(checkpoint.topic or "", checkpoint.queue_id, offset, 1)

    def _is_cold(self, checkpoint: Checkpoint, index: int) -> bool:
        offset = checkpoint.offset_of(index)
        reader = self._store.reader
        return bool(reader.cold_ranges(checkpoint.topic or "", checkpoint.queue_id, offset, 1))

    # The retry topic

    def _is_ready(self, retry_topic: str, group: str) -> bool:
        """Whether the retry topic is there, and on the disk; it is made if need be."""
        if self._topics.get(retry_topic) is None:
            self._topics.ensure(retry_topic, 1)
            if self._offsets.query(group, retry_topic, 0) < 0:
                self._offsets.commit("reviving", group, retry_topic, 0, 0)
            self._unsaved_topics.add(retry_topic)
            self._topic_file.when_saved(lambda _: self._saved(retry_topic))
        return retry_topic not in self._unsaved_topics

    def _saved(self, retry_topic: str) -> None:
        self._unsaved_topics.discard(retry_topic)  # what could not be saved now is saved later
        if self.on_ready is not None:
            self.on_ready()

    # One message

    def _bring_back(self, checkpoint: Checkpoint, offset: int, retry_topic: str) -> bool:
        """Put a message into the retry topic; False if that has to be tried again."""
        message = self._message(checkpoint, offset)
        if message is None:
            log.info("message %d of %s-%d is gone", offset, checkpoint.topic, checkpoint.queue_id)
            return True
        properties = message.properties()
        if message.reconsume_times == 0 or FIRST_POP_TIME not in properties:
            properties[FIRST_POP_TIME] = str(checkpoint.pop_time_ms)
        revived = restored(
            message,
            retry_topic,
            0,
            stored_block(properties),
            born_host=self._revive_topic.host,
            is_retry=True,
        )
        is_put = check_put(self._store.put(revived).status)
        self.revived += is_put
        return is_put

    def _message(self, checkpoint: Checkpoint, offset: int) -> Record | None:
        found = self._store.reader.get(checkpoint.topic or "", checkpoint.queue_id, offset, 1)
        if not found.records or found.queue_offsets[0] != offset:
            return None
        return decode_record(found.records[0])

    def _acknowledge(self, checkpoint: Checkpoint, offsets: list[int], revive_queue: int) -> None:
        """Say in the revive topic itself that these messages are done."""
        ack = ack_of(checkpoint, offsets)
        self._revive_topic.put_ack(ack, revive_queue, 0)
