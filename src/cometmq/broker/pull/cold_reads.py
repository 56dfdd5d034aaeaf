"""How much groups read that is not in memory, and what happens to those that read too much of it.

Rules kept here:
- Nothing is held back unless `coldDataFlowControlEnable` is set, and never a group of the system. What is
  read from memory is neither counted nor held back.
- Bytes are counted for five seconds, by group and in all, and from 0 again then. A group that has read
  `cgColdReadThreshold` bytes or what was set for it, or any group once all have read
  `globalColdReadThreshold`, is held back until they are over. Thresholds do not change by themselves:
  `coldCtrStrategyEnable` has no effect.
- At most `MOST_GROUPS` groups have a threshold of their own, and as many are told apart; what further ones
  read counts in all only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.broker.topics.names import is_system_group
from cometmq.model.errors import CometError
from cometmq.wire.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

MOST_GROUPS: Final = 10_000
SPAN_MS: Final = 5_000
FORGET_MS: Final = 60_000
"""So long after its last cold read a group is shown."""
HOLD_S: Final = 3.0
"""For so long a pull of a group that reads too much waits, if its consumer asks by itself."""
REFUSAL: Final = "This consumer group is reading cold data. It has been flow control"


class ColdRead:
    """What a group has read."""

    __slots__ = ("first_ms", "last_ms", "size")

    def __init__(self, now_ms: int) -> None:
        self.size = 0
        self.first_ms = self.last_ms = now_ms


class ColdReads:
    """The cold reads of one broker; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
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
        """Note that a group has read so many bytes that were not in memory."""
        self.renew()
        now_ms = self._state.clock.now_ms()
        self.total += size
        read = self.groups.get(group)
        if read is None:
            if len(self.groups) >= MOST_GROUPS:
                return
            read = self.groups[group] = ColdRead(now_ms)
        read.size += size
        read.last_ms = now_ms

    def is_over(self, group: str) -> bool:
        """Whether a group is to be held back."""
        state = self._state
        if not state.store_config.cold_data_flow_control_enable or is_system_group(group):
            return False
        self.renew()
        if self.total >= state.config.global_cold_read_threshold:
            return True
        read = self.groups.get(group)
        return read is not None and read.size >= self.thresholds.get(
            group, state.config.cg_cold_read_threshold
        )

    def renew(self) -> None:
        """Begin at 0 again, if it is time."""
        now_ms = self._state.clock.now_ms()
        if 0 <= now_ms - self._began_ms < SPAN_MS:
            return
        self._began_ms = now_ms
        self.total = 0
        self.groups = {
            group: read for group, read in self.groups.items() if now_ms - read.last_ms < FORGET_MS
        }
        for read in self.groups.values():
            read.size = 0
