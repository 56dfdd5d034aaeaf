"""Transaction check-back: asking producers about half messages that were neither committed nor rolled back.

Rules kept here:
- Half messages are looked at in order, from the offset of the transaction group on. The offset moves over
  ended transactions, and over half messages that are put again at the end of the topic: because they are
  checked, or because they asked for more time. It stops at the first that is too young.
- A half message that was checked too often, or is older than messages are kept, is moved to
  `TRANS_CHECK_MAX_TIME_TOPIC`.
- A check goes to one producer of the group, each time another one, as long as its connection takes more.
  Nobody waits for the answer: it comes as a request of its own, or the check is repeated.
- A message of the op topic is done when the offset is beyond all half messages that it names.
- The new offset of a copy is in the op topic when a look through its queue ends, long before the offset of
  the group is saved: a kill repeats the copies of one look, and never those of the looks before.
- A half message that can never be put again, or has no target, is set aside, and so is a message of the op
  topic that cannot be read; the offset moves over them. The end of a half message that is not there yet
  counts for nothing.
- The memory for ends is bounded: they are read for `WINDOW` half messages at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.monitor.counters import TopicCounts
from cometmq.broker.real_targets import RealTargets
from cometmq.broker.set_aside import TRANSACTIONS, SetAside, UnprocessableError, check_put
from cometmq.broker.settings import Settings
from cometmq.broker.topics.topics import Topics
from cometmq.broker.transactions.half_messages import (
    checks_of,
    discarded,
    immunity_ms,
    renewed,
    target_of,
)
from cometmq.broker.transactions.op_queue import OpQueue, read_ends
from cometmq.model.errors import CometError, ProtocolError
from cometmq.model.java_numbers import natural_long
from cometmq.model.message_properties import (
    PGROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
)
from cometmq.model.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)
from cometmq.ports.clock import Clock
from cometmq.ports.rarely import Rarely
from cometmq.remoting.connection import Connection
from cometmq.store.message_store import MessageStore
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import encode_fields
from cometmq.wire.headers.send import CheckTransactionStateRequest
from cometmq.wire.record.codec import Record, decode_record, encode_record
from cometmq.wire.record.ids import encode_offset_id

log = logging.getLogger("cometmq.broker")

MOST_GROUPS: Final = 10_000
"""Of more groups than that it is not remembered who was asked last."""
MOST_UNWRITTEN: Final = 1024 * 1024
"""A connection with more unwritten bytes is asked nothing."""
WINDOW: Final = 65_536
"""The number of half messages for which ends are read at a time."""
READ_AT_ONCE: Final = 32
PASSED_AT_ONCE: Final = 2000
LONGEST_RUN_MS: Final = 60_000


class CheckBacks:
    """Asks producers; belongs to the event loop."""

    def __init__(self, settings: Settings, clients: Clients) -> None:
        self._nobody = Rarely()
        self._settings = settings
        self._clients = clients
        self._asked: dict[str, int] = {}
        """By group: how often somebody was asked."""

    def ask(self, half: Record, properties: Mapping[str, str]) -> bool:
        """Ask about a half message; False if nobody could be asked."""
        group, target = properties.get(PGROUP), target_of(properties)
        connection = None if group is None else self._pick_producer(group)
        if connection is None or target is None:
            if count := self._nobody.count():
                log.warning(
                    "nobody of %s can be asked about its transaction at %d, nor about %d others",
                    *(group, half.physical_offset, count - 1),
                )
            return False
        unique_key = properties.get(UNIQ_KEY)
        header = CheckTransactionStateRequest(
            topic=half.topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=encode_offset_id(half.store_host, half.physical_offset),
            target_broker_name=self._settings.broker.broker_name,
        )
        try:
            topic, queue_id = target
            shown = msgspec.structs.replace(
                half, topic=topic, queue_id=queue_id, magic=0, prepared_transaction_offset=0
            )
            body = bytes(encode_record(shown))
            connection.oneway(RequestCode.CHECK_TRANSACTION_STATE, encode_fields(header), body)
        except CometError as error:
            log.warning("%s of %s was not asked: %s", connection.remote_address, group, error.message)
            return False
        return True

    def _pick_producer(self, group: str) -> Connection | None:
        members = list(self._clients.producers.get(group, ()))
        if not members:
            return None
        if len(self._asked) >= MOST_GROUPS and group not in self._asked:
            self._asked.clear()
        turn = self._asked[group] = self._asked.get(group, -1) + 1
        for index in range(len(members)):
            connection = members[(turn + index) % len(members)]
            if connection.is_open and connection.unwritten_bytes < MOST_UNWRITTEN:
                return connection
        return None


@dataclass(eq=False, repr=False)
class TransactionChecker:
    """Looks through the half topic, when it is asked to; belongs to the event loop."""

    _settings: Settings
    clock: Clock
    store: MessageStore
    _topics: Topics
    _offsets: ConsumerOffsets
    _targets: RealTargets
    _set_aside: SetAside
    _check_backs: CheckBacks
    ends: OpQueue
    _counts: TopicCounts

    def __post_init__(self) -> None:
        self.checked = 0
        """How many checks there were since the start."""
        self._given_up = Rarely()
        self.given_up = 0
        """How many transactions were given up."""

    async def run(self) -> None:
        """Look through all queues of the half topic once."""
        topic = self._topics.get(TRANS_HALF_TOPIC)
        for queue_id in range(1 if topic is None else topic.read_queue_nums):
            await self._check_queue(queue_id)

    async def _check_queue(self, queue_id: int) -> None:
        half = self.offset_in(TRANS_HALF_TOPIC, queue_id)
        operation = self.offset_in(TRANS_OP_HALF_TOPIC, queue_id)
        target = self.end_of(TRANS_HALF_TOPIC, queue_id)
        if half < target:
            self.ends.write(queue_id)
            reached = await _QueueCheck(self, queue_id, operation).run(half, target)
            self.ends.write(queue_id)
            self._commit(TRANS_HALF_TOPIC, queue_id, reached)
            half = reached
        if operation < self.end_of(TRANS_OP_HALF_TOPIC, queue_id):
            self._commit(TRANS_OP_HALF_TOPIC, queue_id, await self._done_with(queue_id, operation, half))

    def offset_in(self, topic: str, queue_id: int) -> int:
        """Where the transaction group is in a queue."""
        queue = self.store.queues.find(topic, queue_id)
        offset = max(self._offsets.query(TRANSACTION_GROUP, topic, queue_id), 0)
        # Beyond the end it would skip all that comes until then.
        return offset if queue is None else min(max(offset, queue.min_offset), queue.max_offset)

    def end_of(self, topic: str, queue_id: int) -> int:
        """The offset after the last message of a queue."""
        return self.store.queues.bounds(topic, queue_id)[1]

    def _commit(self, topic: str, queue_id: int, offset: int) -> None:
        self._offsets.commit_own("transactions", TRANSACTION_GROUP, topic, queue_id, offset)

    async def _done_with(self, queue_id: int, operation: int, half: int) -> int:
        """After how many messages of the op topic nothing is to be known any more."""
        end = self.end_of(TRANS_HALF_TOPIC, queue_id)
        while operation < self.end_of(TRANS_OP_HALF_TOPIC, queue_id):
            found = await self.store.get(TRANS_OP_HALF_TOPIC, queue_id, operation, READ_AT_ONCE)
            for view, queue_offset in zip(found.records, found.queue_offsets, strict=True):
                if any(half <= offset < end for offset in self._ends_in(view, queue_id, queue_offset)):
                    return queue_offset
            if found.next_offset <= operation:
                return operation
            operation = found.next_offset
            await asyncio.sleep(0)  # others get their turn
        return operation

    async def read_window(self, queue_id: int, operation: int, end: int) -> set[int]:
        """The half messages before an end that the op topic knows, from an offset on, to have ended."""
        ended: set[int] = set()
        target = self.end_of(TRANS_OP_HALF_TOPIC, queue_id)
        while operation < target:
            found = await self.store.get(TRANS_OP_HALF_TOPIC, queue_id, operation, READ_AT_ONCE)
            for view, queue_offset in zip(found.records, found.queue_offsets, strict=True):
                ended.update(offset for offset in self._ends_in(view, queue_id, queue_offset) if offset < end)
            if found.next_offset <= operation:
                break
            operation = found.next_offset
            await asyncio.sleep(0)  # others get their turn
        return ended

    def _ends_in(self, view: memoryview, queue_id: int, queue_offset: int) -> Iterable[int]:
        """The half messages that a message of the op topic ends."""
        try:
            operation = decode_record(view)
            if operation.topic != TRANS_OP_HALF_TOPIC:
                raise UnprocessableError(f"it is a message of topic {operation.topic!r}")
        except (ProtocolError, UnprocessableError) as error:
            self._set_aside.add_entry(TRANSACTIONS, TRANS_OP_HALF_TOPIC, queue_id, queue_offset, error)
            return ()
        return read_ends(operation)

    # What is done with one half message

    def check_view(
        self, view: memoryview, position: tuple[int, int], started_ms: int, ended: set[int]
    ) -> bool:
        """Decode and `check` a half message; set it aside if that is impossible."""
        try:
            half = decode_record(view)
            if half.topic != TRANS_HALF_TOPIC:
                raise UnprocessableError(f"it is a message of topic {half.topic!r}")
            return self.check(half, started_ms, ended)
        except Exception as error:
            self._set_aside.add_failed(TRANSACTIONS, TRANS_HALF_TOPIC, *position, error)
            return True

    def check(self, half: Record, started_ms: int, ended: set[int]) -> bool:
        """Do what a half message that has not ended needs; False if it has to stay where it is."""
        config, properties = self._settings.broker, half.properties()
        self._targets.find(properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID))
        age_ms = self.clock.now_ms() - half.born_timestamp_ms
        checks = checks_of(properties)
        if (
            checks >= config.transaction_check_max
            or age_ms > self._settings.store.file_reserved_time * 3_600_000
        ):
            return self._give_up(half, properties)
        if half.store_timestamp_ms >= started_ms:
            return False
        asked_ms = immunity_ms(properties)
        if asked_ms is not None and age_ms < asked_ms:
            return self._postpone(half, properties, ended)
        if asked_ms is None and 0 <= age_ms < config.transaction_time_out:
            return False
        properties[TRANSACTION_CHECK_TIMES] = str(checks + 1)
        copy = self._put_again(half, properties)
        if copy is None:
            return False
        self.checked += 1
        self._check_backs.ask(copy, properties)
        return True

    def _postpone(self, half: Record, properties: dict[str, str], ended: set[int]) -> bool:
        """Put a half message aside that asked for time, unless the copy that its producer knows has ended."""
        first = properties.setdefault(TRAN_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
        queue_offset = natural_long(first)
        queue_offset = half.queue_offset if queue_offset is None else queue_offset
        if queue_offset in ended or self.ends.outcome(half.queue_id, queue_offset) is not None:
            return True
        return self._put_again(half, properties) is not None

    def _put_again(self, half: Record, properties: dict[str, str]) -> Record | None:
        copy = renewed(half, properties)
        result = self.store.put(copy)
        if not check_put(result.status):
            log.warning("a half message could not be put again: %s", result.status.value)
            return None
        copy.store_host = result.store_host
        self.ends.copied(half.queue_id, half.queue_offset, copy.queue_offset)
        if not _is_named_by_copies(half, properties):
            self.ends.moved(half.queue_id, half.queue_offset)
        return copy

    def _give_up(self, half: Record, properties: dict[str, str]) -> bool:
        self._topics.ensure(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        status = self.store.put(discarded(half)).status
        if not check_put(status):
            log.warning("a half message could not be given up: %s", status.value)
            return False
        self.given_up += 1
        self.ends.moved(half.queue_id, half.queue_offset)
        target = target_of(properties)
        if target is not None:
            self._counts.add(target[0], -1)
        if count := self._given_up.count():
            log.error(
                "the transaction of %s at %d is too old, or was checked too often (%d times); it is moved to "
                "%s, and so are %d others",
                *(target, half.physical_offset, checks_of(properties), TRANS_CHECK_MAX_TIME_TOPIC, count - 1),
            )
        return True


def _is_named_by_copies(half: Record, properties: dict[str, str]) -> bool:
    """Whether copies of a half message look in the op topic for the end of this one.

    It is so for the first of a transaction that asked for time: noted there, it would count as ended.
    """
    queue_offset = str(half.queue_offset)
    return (
        immunity_ms(properties) is not None
        and properties.get(TRAN_PREPARED_QUEUE_OFFSET, queue_offset) == queue_offset
    )


@dataclass(eq=False, repr=False)
class _QueueCheck:
    """One look through one queue."""

    _checker: TransactionChecker
    _queue_id: int
    _operation: int
    _ended: set[int] = field(default_factory=set)

    async def run(self, half: int, target: int) -> int:
        """Look at half messages from an offset on, and return the offset that was reached."""
        self._checker.ends.on_end = self._note_end
        try:
            return await self._run(half, target)
        finally:
            self._checker.ends.on_end = None

    def _note_end(self, queue_id: int, offset: int) -> None:
        if queue_id == self._queue_id:
            self._ended.add(offset)

    async def _run(self, half: int, target: int) -> int:
        clock, store = self._checker.clock, self._checker.store
        started_ms = clock.now_ms()
        window_end = passed = 0
        while half < target:
            if half >= window_end:
                window_end = half + WINDOW
                noted = await self._checker.read_window(self._queue_id, self._operation, window_end)
                self._ended = {offset for offset in self._ended if offset >= half} | noted
            passed += 1
            if passed % PASSED_AT_ONCE == 0:
                await asyncio.sleep(0)  # others get their turn
            if self._has_ended(half):
                half += 1
                continue
            if clock.now_ms() - started_ms > LONGEST_RUN_MS:
                break
            found = await store.get(TRANS_HALF_TOPIC, self._queue_id, half, 1)
            if not found.records or found.queue_offsets[0] != half:
                if found.next_offset <= half:
                    break
                half = found.next_offset if not found.records else found.queue_offsets[0]
            elif self._has_ended(half) or self._checker.check_view(  # it may have ended meanwhile
                found.records[0], (self._queue_id, half), started_ms, self._ended
            ):
                half += 1
            else:
                break
        return half

    def _has_ended(self, offset: int) -> bool:
        return offset in self._ended or self._checker.ends.outcome(self._queue_id, offset) is not None
