"""Cold reads: flow control of groups that read what is not in memory, and so push others out of it.

Rules kept here:
- Nothing is held back unless `coldDataFlowControlEnable` is set, and never a group of the system. What is
  read from memory is neither counted nor held back.
- Bytes are counted for five seconds, by group and in all, and from 0 again then. A group that has read
  `cgColdReadThreshold` bytes or what was set for it, or any group once all have read
  `globalColdReadThreshold`, is held back until they are over. Thresholds do not change by themselves:
  `coldCtrStrategyEnable` has no effect.
- With `disableConsumeIfConsumerReadSlowly`, a group that is online and lags in any queue by more than
  `consumerFallbehindThreshold` bytes of the log is switched off. An administrator switches it on again.
- At most `MOST_GROUPS` groups have a threshold of their own, and as many are told apart; what further ones
  read counts in all only.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

import msgspec

from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import is_system_group
from cometmq.broker.topics.topics import Topics
from cometmq.model.errors import CometError
from cometmq.ports.clock import Clock
from cometmq.store.message_store import MessageStore
from cometmq.wire.codes import ResponseCode

log = logging.getLogger("cometmq.broker")

MOST_GROUPS: Final = 10_000
SPAN_MS: Final = 5_000
FORGET_MS: Final = 60_000
"""How long after its last cold read a group is shown."""
HOLD_S: Final = 3.0
"""How long a pull of a group over its threshold waits, if its consumer pulls on its own."""
REFUSAL: Final = "This consumer group is reading cold data. It has been flow control"


class ColdRead(msgspec.Struct):
    """The cold reads of a group."""

    first_ms: int
    last_ms: int
    size: int = 0


class ColdReads:
    """The cold reads of one broker; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._settings = settings
        self.thresholds: dict[str, int] = {}
        """By group: how many bytes it may read in a while, where that was set."""
        self.groups: dict[str, ColdRead] = {}
        self.total = 0
        self._began_ms = 0

    def set_thresholds(self, changes: dict[str, int]) -> None:
        """Set those of some groups; all of them, or none."""
        if len(self.thresholds.keys() | changes.keys()) > MOST_GROUPS:
            message = f"{MOST_GROUPS} groups have a threshold already; remove one that is not needed first"
            raise CometError(message, code=ResponseCode.INVALID_PARAMETER)
        self.thresholds.update(changes)

    def count(self, group: str, size: int) -> None:
        """Count bytes that a group has read from the disk."""
        self.renew()
        now_ms = self._clock.now_ms()
        self.total += size
        read = self.groups.get(group)
        if read is None:
            if len(self.groups) >= MOST_GROUPS:
                return
            read = self.groups[group] = ColdRead(now_ms, now_ms)
        read.size += size
        read.last_ms = now_ms

    def is_over(self, group: str) -> bool:
        """Whether a group is to be held back."""
        if not self._settings.store.cold_data_flow_control_enable or is_system_group(group):
            return False
        self.renew()
        if self.total >= self._settings.broker.global_cold_read_threshold:
            return True
        read = self.groups.get(group)
        return read is not None and read.size >= self.thresholds.get(
            group, self._settings.broker.cg_cold_read_threshold
        )

    def renew(self) -> None:
        """Begin at 0 again, if it is time."""
        now_ms = self._clock.now_ms()
        if 0 <= now_ms - self._began_ms < SPAN_MS:
            return
        self._began_ms = now_ms
        self.total = 0
        self.groups = {
            group: read for group, read in self.groups.items() if now_ms - read.last_ms < FORGET_MS
        }
        for read in self.groups.values():
            read.size = 0


@dataclass(eq=False, repr=False)
class SlowGroups:
    """Looks for groups that lag too much; belongs to the event loop."""

    _settings: Settings
    _store: MessageStore
    _topics: Topics
    _groups: Groups
    _offsets: ConsumerOffsets
    _clients: Clients

    def disable(self) -> None:
        """Switch off the groups that lag too much, if the settings ask for it."""
        if not self._settings.broker.disable_consume_if_consumer_read_slowly:
            return
        for name, group in list(self._clients.consumers.items()):
            config = self._groups.get(name)
            if config is None or not config.consume_enable:
                continue
            lag = max((self.lag_bytes(name, topic) for topic in group.subscriptions), default=0)
            if lag > self._settings.broker.consumer_fallbehind_threshold:
                log.warning("group %s lags by %d bytes and is switched off", name, lag)
                self._groups.update(msgspec.structs.replace(config, consume_enable=False))

    def lag_bytes(self, group: str, topic: str) -> int:
        """How many bytes of the log a group lags; the most of all queues of a topic."""
        config = self._topics.get(topic)
        end = self._store.log.max_offset
        furthest = end
        for queue_id in range(0 if config is None else config.read_queue_nums):
            queue = self._store.queues.find(topic, queue_id)
            offset = self._offsets.query_pulled(group, topic, queue_id)
            if queue is not None and 0 <= offset < queue.max_offset:
                unit = queue.unit(max(offset, queue.min_offset))
                if unit is not None:
                    furthest = min(furthest, unit[0])
        return end - furthest
