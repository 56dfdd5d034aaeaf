"""The revive topic: checkpoints and acknowledgements of pops, written through the timers.

Rules kept here:
- A checkpoint is due a second before its messages become visible again, an acknowledgement when they do. So
  whoever reads the revive topic meets a checkpoint before its acknowledgements, and knows when all of them
  are there. What is due already is in the revive topic at once.
- A slot of the timer wheel that is overfull takes these all the same: a checkpoint that is not written is a
  message that does not come back.
- Where a record moves a group on in a queue, it says so in a property of its own (`CK_NEXT`), from which a
  start after a crash learns how far the group has come. Apache's broker passes over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from cometmq.broker.pop.handles import PopRefused
from cometmq.broker.send.properties import java_order
from cometmq.broker.settings import Settings
from cometmq.broker.timers.schedule import slot_before
from cometmq.model.message import Host
from cometmq.model.message_properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from cometmq.model.names import REVIVE_PREFIX, TIMER_TOPIC
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.store.put.writer import PutResult
from cometmq.store.status import PutStatus
from cometmq.wire.bodies.pop import Ack, Checkpoint, encode_ack, encode_checkpoint
from cometmq.wire.codes import ResponseCode
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host

CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
CHECKPOINT_LEAD_MS: Final = 1000
"""How much earlier than its messages become visible a checkpoint is due."""
NEXT_OFFSET: Final = "CK_NEXT"
"""The property that says where a group goes on after this record."""

_PLAIN: Final = (TAGS, TIMER_DELIVER_MS, UNIQ_KEY)
_TIMED: Final = (TIMER_OUT_MS, REAL_TOPIC, REAL_QUEUE_ID)


def _template(names: Iterable[str]) -> str:
    """The properties with these names in their order, with places for the values."""
    return "".join(f"{name}\x01%({name})s\x02" for name in java_order(names))


_DIRECT_TEMPLATES: Final = (_template(_PLAIN), _template((*_PLAIN, NEXT_OFFSET)))
_TIMED_TEMPLATES: Final = (_template((*_PLAIN, *_TIMED)), _template((*_PLAIN, NEXT_OFFSET, *_TIMED)))
"""Without the next offset, and with it."""


class AckedCheckpoint(NamedTuple):
    """A checkpoint of which messages are acknowledged."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    broker_name: str


class ReviveTopic:
    """Puts records for the revive topic; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, host: Host, store: MessageStore) -> None:
        self._clock = clock
        self._put_record = store.put
        self._settings = settings
        self.longest_ms = 0
        """For longer no message can be invisible, under any setting since the start."""
        self._settings_changed()
        settings.on_change.append(self._settings_changed)
        self._slot_ms = settings.store.timer_slot_ms
        self.topic = REVIVE_PREFIX + settings.broker.broker_cluster_name
        self.host = pack_host(host)
        """The address of this broker, packed."""
        self.checkpoints = 0
        """How many were written since the start."""
        self.acks = 0

    def _settings_changed(self) -> None:
        self.longest_ms = max(self.longest_ms, self._settings.store.timer_max_delay_sec * 1000)

    def put_checkpoint(
        self, checkpoint: Checkpoint, revive_queue: int, next_offset: int | None = None
    ) -> PutResult:
        """Write a checkpoint, with the offset from which its group goes on if that is news."""
        key = (
            f"{checkpoint.topic}@{checkpoint.queue_id}@{checkpoint.start_offset}@{checkpoint.group}"
            f"@{checkpoint.pop_time_ms}@{checkpoint.broker_name}@{CHECKPOINT_TAG}"
        )
        deliver_ms = checkpoint.revive_ms - CHECKPOINT_LEAD_MS
        self.checkpoints += 1
        body = encode_checkpoint(checkpoint)
        return self._put(CHECKPOINT_TAG, key, body, revive_queue, deliver_ms, next_offset)

    def put_ack(
        self, ack: Ack, revive_queue: int, deliver_ms: int, next_offset: int | None = None
    ) -> PutResult:
        """Write an acknowledgement of one message or of several."""
        where = f"{ack.topic}@{ack.queue_id}@{ack.offset}@{ack.group}"
        key = f"{where}@{ack.pop_time_ms}@{ack.broker_name}@{ACK_TAG}"
        tag = ACK_TAG if ack.offsets is None else BATCH_ACK_TAG
        self.acks += 1
        return self._put(tag, key, encode_ack(ack), revive_queue, deliver_ms, next_offset)

    def _put(
        self,
        tag: str,
        key: str,
        body: bytes,
        revive_queue: int,
        deliver_ms: int,
        next_offset: int | None,
    ) -> PutResult:
        now_ms = self._clock.now_ms()
        values: dict[str, str | int | None]
        values = {TAGS: tag, UNIQ_KEY: key, TIMER_DELIVER_MS: deliver_ms, NEXT_OFFSET: next_offset}
        if deliver_ms <= now_ms:
            topic, queue_id, templates = self.topic, revive_queue, _DIRECT_TEMPLATES
        else:
            values[TIMER_OUT_MS] = slot_before(deliver_ms, self._slot_ms)
            values[REAL_TOPIC] = self.topic
            values[REAL_QUEUE_ID] = revive_queue
            topic, queue_id, templates = TIMER_TOPIC, 0, _TIMED_TEMPLATES
        text = templates[next_offset is not None] % values
        return self._put_record(
            Record(
                topic,
                body,
                text.encode(),
                queue_id=queue_id,
                born_timestamp_ms=now_ms,
                born_host=self.host,
            )
        )


def ack_of(checkpoint: Checkpoint | AckedCheckpoint, offsets: list[int]) -> Ack:
    """The acknowledgement of one or several messages of a checkpoint."""
    is_one = len(offsets) == 1
    return Ack(
        offset=offsets[0] if is_one else -1,
        offsets=None if is_one else offsets,
        broker_name=checkpoint.broker_name,
        group=checkpoint.group,
        pop_time_ms=checkpoint.pop_time_ms,
        queue_id=checkpoint.queue_id,
        start_offset=checkpoint.start_offset,
        topic=checkpoint.topic,
    )


def not_written(status: PutStatus) -> PopRefused:
    """The refusal of a request about which nothing could be put."""
    remark = f"the broker could not write this down: {status.value}; try again"
    return PopRefused(ResponseCode.SYSTEM_ERROR, remark)
