"""Whether a group pulls or pops a topic, as administrators have set it."""

from __future__ import annotations

from typing import Final

from cometmq.broker.saved_tables import TableFiles
from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import RETRY_PREFIX
from cometmq.store.tables.tables import MessageRequestMode, MessageRequestModeTable

PULL: Final = "PULL"
POP: Final = "POP"


class RequestModes:
    """Modes by topic and group; belongs to the event loop."""

    def __init__(self, settings: Settings, files: TableFiles) -> None:
        self._settings = settings
        self.table: dict[str, dict[str, MessageRequestMode]] = {}
        self._file = files.table(MessageRequestModeTable, self.snapshot)

    def load(self) -> None:
        """Take over what was saved; blocks."""
        saved = self._file.file.load()
        if saved is not None:
            self.table.update(saved.message_request_mode_map)

    def snapshot(self) -> MessageRequestModeTable:
        return MessageRequestModeTable({topic: dict(groups) for topic, groups in self.table.items()})

    async def set(self, mode: MessageRequestMode) -> None:
        """Set a mode, and return when it is on the disk."""
        self.table.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._file.changed()
        await self._file.saved()

    def get(self, topic: str, group: str) -> MessageRequestMode:
        """The mode of a group; what a broker's settings say where nobody set one. Retries are pulled."""
        found = self.table.get(topic, {}).get(group)
        if found is not None:
            return found
        config = self._settings.broker
        if topic.startswith(RETRY_PREFIX) or config.default_message_request_mode == PULL:
            return MessageRequestMode(topic, group, PULL)
        return MessageRequestMode(topic, group, POP, config.default_pop_share_queue_num)
