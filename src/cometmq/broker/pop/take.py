"""Taking messages for a pop: queue by queue, with a checkpoint for each.

Rules kept here:
- Everything happens in one turn of the event loop, so that no two pops ever meet in a queue.
- A group goes on in a queue only when the checkpoint of what it took is in the log. In order it goes on with
  the acknowledgements, and stays where it is until then.
- The retry topics of a group are read along: in one pop of five first, otherwise when there is room left, and
  never in order. Their messages come as messages of the topic that was asked for.
- A queue whose next messages are far back is left out; the pop says so.
- A pop that goes through very many queues, or reads with a filter that hardly anything passes, ends when it
  has taken long, with what it has.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.monitor.counters import Traffic
from cometmq.broker.pop.checks import PopPermit
from cometmq.broker.pop.consumer_order import ConsumerOrders
from cometmq.broker.pop.handles import Handle, mark_of
from cometmq.broker.pop.in_flight import InFlight
from cometmq.broker.pop.offsets import PopOffsets
from cometmq.broker.pop.revive_topic import ReviveTopic
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import ProtocolError
from cometmq.model.message_properties import POP_CK
from cometmq.store.message_store import MessageStore
from cometmq.store.read.reader import GetResult, GetStatus
from cometmq.store.status import PutStatus
from cometmq.wire.bodies.pop import Checkpoint
from cometmq.wire.frame.command import Body
from cometmq.wire.headers.pop import PopMessageRequest
from cometmq.wire.record.codec import decode_record, encode_record
from cometmq.wire.record.properties import find_property

TAKE_S: Final = 0.1
"""The longest time that a pop reads queues."""
_MANY_QUEUES: Final = 100

_MISPLACED: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
)
_OK: Final = PutStatus.PUT_OK

ColdRead = tuple[str, int, int]
"""Topic, queue id and offset of a read that may have to wait for the disk."""


@dataclass(slots=True, eq=False)
class Pop:
    """One pop while it goes from queue to queue."""

    header: PopMessageRequest
    permit: PopPermit
    host: str
    pop_time_ms: int
    revive_queue: int
    records: list[Body] = field(default_factory=list)
    rest: int = 0
    """How many messages are left in the queues."""
    start_infos: list[str] = field(default_factory=list)
    message_infos: list[str] = field(default_factory=list)
    order_infos: list[str] = field(default_factory=list)
    end_offset: int = -1
    """Where the last checkpoint ends in the log."""
    progressed: bool = False
    """Whether the group went on in some queue."""
    until: float = field(default_factory=lambda: perf_counter() + TAKE_S)
    fetched: frozenset[ColdRead] = frozenset()
    cold: ColdRead | None = None
    """The read that needs the disk first."""

    @property
    def room(self) -> int:
        return self.header.max_msg_nums - len(self.records)

    @property
    def is_late(self) -> bool:
        """Whether it has read queues for longer than `TAKE_S`."""
        if perf_counter() < self.until:
            return False
        self.rest = max(self.rest, 1)  # there may be more where it did not look
        return True


@dataclass(eq=False, repr=False)
class Taker:
    """Takes messages out of queues for a time."""

    _settings: Settings
    _store: MessageStore
    _topics: Topics
    _offsets: ConsumerOffsets
    _traffic: Traffic
    _pop_offsets: PopOffsets
    _revive_topic: ReviveTopic
    _orders: ConsumerOrders
    _in_flight: InFlight
    _save_offsets: Callable[[], None]

    def __post_init__(self) -> None:
        self._reader = self._store.reader
        self._find_queue = self._store.queues.find

    def take(self, pop: Pop) -> None:
        """Take as many messages as a pop asks for, and as there are."""
        header, queues = pop.header, pop.permit.topic.read_queue_nums
        chance = random.randrange(100)
        retries_first = chance < self._settings.broker.pop_from_retry_probability
        if retries_first and not header.order:
            self._take_retries(pop, chance)
        if header.queue_id >= 0:
            self._take_queue(pop, header.topic, header.queue_id)
        else:
            # Whoever cannot look at all queues in time begins elsewhere the next time.
            start = chance if queues <= _MANY_QUEUES else random.randrange(queues)
            for number in range(queues):
                queue_id = (start + number) % queues
                if pop.is_late:
                    break
                if pop.room > 0 or header.order or not self._leave_queue(pop, header.topic, queue_id):
                    self._take_queue(pop, header.topic, queue_id)
        if not retries_first and not header.order and pop.room > 0:
            self._take_retries(pop, chance)

    def _take_retries(self, pop: Pop, chance: int) -> None:
        """Read the retry topic of one version; that of the other one if there is nothing."""
        config = self._settings.broker
        topics: Sequence[str] = pop.permit.retry_topics[:1]
        if config.enable_retry_topic_v2:
            # What was brought back before the second version was switched on is in the first one.
            topics = pop.permit.retry_topics
            if not config.retrieve_message_from_pop_retry_topic_v1:
                topics = topics[1:]
            elif chance % 2:
                topics = topics[::-1]
        for name in topics:
            topic = self._topics.get(name)
            if topic is None:
                continue
            taken = len(pop.start_infos)
            for number in range(topic.read_queue_nums):
                if pop.is_late:
                    break
                self._take_queue(pop, name, (chance + number) % topic.read_queue_nums, is_retry=True)
            if len(pop.start_infos) > taken:
                return

    def _leave_queue(self, pop: Pop, topic: str, queue_id: int) -> bool:
        """Count what a queue has left for others; False if its offset has to be set first."""
        group, offsets = pop.header.consumer_group, self._offsets
        offset = offsets.query(group, topic, queue_id)
        if offset < 0 or offsets.has_reset(topic, group, queue_id):
            return False
        queue = self._find_queue(topic, queue_id)
        if queue is not None and queue.max_offset > offset:
            pop.rest += queue.max_offset - offset
        return True

    def _take_queue(self, pop: Pop, topic: str, queue_id: int, *, is_retry: bool = False) -> None:
        header, group = pop.header, pop.header.consumer_group
        offset = self._place(pop, topic, queue_id)
        queue = self._find_queue(topic, queue_id)
        end = 0 if queue is None else queue.max_offset
        rest = max(end - offset, 0)
        if header.order:
            invisible_ms = header.invisible_time
            if self._orders.is_blocked(topic, group, queue_id, header.attempt_id, invisible_ms):
                return  # the messages after it are not to wake anybody
            self._in_flight.clear(topic, group, queue_id)
        if offset == end:
            return
        room, wanted = pop.room, pop.permit.wanted
        if room <= 0 or self._in_flight.is_full(topic, group, queue_id):
            pop.rest += rest
            return
        if self._reader.cold_ranges(topic, queue_id, offset, room, wanted):
            read = (topic, queue_id, offset)
            if read not in pop.fetched:
                pop.cold = read
                pop.rest += rest
                return
        started = perf_counter()
        result = self._reader.get(topic, queue_id, offset, room, wanted=wanted)
        if result.status in _MISPLACED:
            offset = result.next_offset
            self._offsets.commit(pop.host, group, topic, queue_id, offset)
            result = self._reader.get(topic, queue_id, offset, room, wanted=wanted)
        seconds = perf_counter() - started
        if seconds > self._traffic.longest_get_s:
            self._traffic.longest_get_s = seconds
        if not result.records:
            if result.next_offset > offset:  # nothing in between is wanted, or there any more
                self._offsets.commit(pop.host, group, topic, queue_id, result.next_offset)
                pop.progressed = True
        elif self._note(pop, topic, queue_id, offset, result):
            self._hand_out(pop, topic, queue_id, offset, result, is_retry=is_retry)
        else:
            pop.rest += rest
            return
        pop.rest += max(result.max_offset - result.next_offset, 0)

    def _place(self, pop: Pop, topic: str, queue_id: int) -> int:
        """Where the group goes on in a queue."""
        group = pop.header.consumer_group
        reset = self._offsets.take_reset(topic, group, queue_id)
        if reset is None:
            return self._pop_offsets.find(topic, group, queue_id, pop.header.init_mode)
        self._orders.clear(topic, group, queue_id)
        self._offsets.commit(pop.host, group, topic, queue_id, reset)
        self._save_offsets()  # what was taken before is not to count again after a crash
        return reset

    def _note(self, pop: Pop, topic: str, queue_id: int, offset: int, result: GetResult) -> bool:
        """Write down that messages are handed out; False if that is not possible."""
        header, offsets = pop.header, result.queue_offsets
        group = header.consumer_group
        if header.order:
            pop.order_infos.append(
                self._orders.take(
                    topic, group, queue_id, header.attempt_id, pop.pop_time_ms, header.invisible_time, offsets
                )
            )
            return True
        checkpoint = Checkpoint(
            broker_name=self._settings.broker.broker_name,
            group=group,
            diffs=[each - offset for each in offsets],
            invisible_ms=header.invisible_time,
            count=len(offsets),
            pop_time_ms=pop.pop_time_ms,
            queue_id=queue_id,
            start_offset=offset,
            topic=topic,
        )
        put = self._revive_topic.put_checkpoint(checkpoint, pop.revive_queue, result.next_offset)
        if put.status is not _OK:
            return False
        self._traffic.note_popped(pop.header.topic, group)
        pop.end_offset = put.end_offset
        self._offsets.commit(pop.host, group, topic, queue_id, result.next_offset)
        return True

    def _hand_out(
        self, pop: Pop, topic: str, queue_id: int, offset: int, result: GetResult, *, is_retry: bool
    ) -> None:
        offsets = result.queue_offsets
        mark = mark_of(topic)
        pop.progressed = True
        pop.start_infos.append(f"{mark} {queue_id} {offset}")
        pop.message_infos.append(f"{mark} {queue_id} {','.join(map(str, offsets))}")
        self._in_flight.add(topic, pop.header.consumer_group, queue_id, len(offsets))
        self._traffic.got(topic, pop.header.consumer_group, queue_id, len(offsets), result.size)
        if not is_retry or self._settings.broker.pop_response_return_actual_retry_topic:
            pop.records += result.records
            return
        broker_name, invisible_ms = self._settings.broker.broker_name, pop.header.invisible_time
        handle = Handle(offset, pop.pop_time_ms, invisible_ms, pop.revive_queue, mark, broker_name)
        for view, queue_offset in zip(result.records, offsets, strict=True):
            pop.records.append(_as_of_topic(view, pop.header.topic, handle.format(queue_id, queue_offset)))


def _as_of_topic(view: memoryview, topic: str, handle: str) -> Body:
    """A message of a retry topic as one of another topic, with its handle."""
    try:
        record = decode_record(view)
    except ProtocolError:
        return view  # the consumer passes over it, as it does in any topic
    block = bytes(record.properties_block)
    if find_property(block, POP_CK) is None:
        separator = b"" if not block or block.endswith(b"\x02") else b"\x02"
        record.properties_block = b"%b%b%b\x01%b\x02" % (block, separator, POP_CK.encode(), handle.encode())
    record.topic = topic
    record.magic = 0
    return encode_record(record)
