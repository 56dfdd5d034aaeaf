"""Whether a group pulls or pops a topic, as administrators have set it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.model.names import RETRY_PREFIX
from cometmq.store.tables.tables import MessageRequestMode, MessageRequestModeTable

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerState

PULL: Final = "PULL"
POP: Final = "POP"


class RequestModes:
    """Modes by topic and group; belongs to the event loop."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.table: dict[str, dict[str, MessageRequestMode]] = {}

    def load(self, saved: MessageRequestModeTable | None) -> None:
        """Take over what was saved."""
        if saved is not None:
            self.table.update(saved.message_request_mode_map)

    def snapshot(self) -> MessageRequestModeTable:
        return MessageRequestModeTable({topic: dict(groups) for topic, groups in self.table.items()})

    def set(self, mode: MessageRequestMode) -> None:
        self.table.setdefault(mode.topic, {})[mode.consumer_group] = mode

    def get(self, topic: str, group: str) -> MessageRequestMode:
        """The mode of a group; what a broker's settings say where nobody set one. Retries are pulled."""
        found = self.table.get(topic, {}).get(group)
        if found is not None:
            return found
        config = self._state.config
        if topic.startswith(RETRY_PREFIX) or config.default_message_request_mode == PULL:
            return MessageRequestMode(topic, group, PULL)
        return MessageRequestMode(topic, group, POP, config.default_pop_share_queue_num)
