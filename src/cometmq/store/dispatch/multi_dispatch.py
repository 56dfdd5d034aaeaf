"""Multi-dispatch: messages that are in further queues beside their own, such as light message queues (LMQ).

Rules kept here:
- A property names the further queues; another one gets the offsets there, in the same order. Light queues
  have the prefix `%LMQ%` and the id 0; other queues have the id of the message.
- Messages of the system, and retries, are in no further queues.
- The number of light queues is limited. A message that would need another one is refused.
"""

from __future__ import annotations

from typing import Final

from cometmq.model.message_properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from cometmq.model.names import LIGHT_QUEUE_PREFIX
from cometmq.store.config import StoreConfig
from cometmq.store.dispatch.dispatcher import Dispatcher
from cometmq.store.dispatch_rules import is_kept_out
from cometmq.store.log.commit_log import CommitLog
from cometmq.store.queue.consume_queue import ConsumeQueue
from cometmq.store.queue.consume_queues import ConsumeQueues
from cometmq.store.status import PutStatus
from cometmq.wire.record.codec import Record
from cometmq.wire.record.properties import find_property

_PAIR_END: Final = b"\x02"


class MultiDispatch:
    """Assigns messages their offsets in further queues."""

    def __init__(
        self, dispatcher: Dispatcher, queues: ConsumeQueues, log: CommitLog, config: StoreConfig
    ) -> None:
        self._dispatcher = dispatcher
        self._queues = queues
        self._max_queues = config.max_lmq_consume_queue_num
        self._log = log

    def queues_for(self, record: Record) -> list[ConsumeQueue] | PutStatus:
        """The further queues of a message, whose properties get the offsets; or why it is refused."""
        block = record.properties_block
        names = find_property(block, INNER_MULTI_DISPATCH) if block else None
        if not names or is_kept_out(record.topic):
            return []
        found = []
        for name in names.split(","):
            queue_id = 0 if name.startswith(LIGHT_QUEUE_PREFIX) else record.queue_id
            if is_kept_out(name):
                return PutStatus.MESSAGE_ILLEGAL
            if self._would_be_one_too_many(name):
                return PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
            queue = self._dispatcher.queue_of(name, queue_id)
            if queue is None:
                return PutStatus.MESSAGE_ILLEGAL
            found.append(queue)
        offsets = ",".join(str(queue.next_offset) for queue in found)
        separator = b"" if block[-1:] == _PAIR_END else _PAIR_END
        record.properties_block = b"".join(
            (block, separator, f"{INNER_MULTI_QUEUE_OFFSET}\x01{offsets}\x02".encode())
        )
        if len(record.body) + len(record.properties_block) > self._log.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        return found

    def _would_be_one_too_many(self, name: str) -> bool:
        if not name.startswith(LIGHT_QUEUE_PREFIX) or self._queues.find(name, 0) is not None:
            return False
        light = sum(topic.startswith(LIGHT_QUEUE_PREFIX) for topic in self._queues.topics())
        return light >= self._max_queues
