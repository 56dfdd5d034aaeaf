"""The consumer groups of a broker: how it serves each, and what they may not do with single topics.

Rules kept here:
- A group that nobody has made is made by the first who asks for it (`find`), if that is switched on and its
  name is legal; `get` never makes one.
- With `maxAutoCreateSubscriptionGroups` groups none is made like that any more, and with
  `maxSubscriptionGroups` none at all.
- Every change makes a new data version and is saved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from cometmq.broker.settings import Settings
from cometmq.broker.topics.names import is_system_group, legal_names, refuse_group
from cometmq.model.names import SYSTEM_GROUPS
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import DataVersion
from cometmq.ports.clock import Clock
from cometmq.ports.rarely import Rarely
from cometmq.store.tables.tables import SubscriptionGroupTable

log = logging.getLogger("cometmq.broker")

READ_FORBIDDEN: Final = 4
"""The bit of a group and a topic that forbids reading."""

MAX_GROUP_BYTES: Final = 16 * 1024
_ORDINARY_BYTES: Final = 1024
MAX_LARGE_BYTES: Final = 16 * 1024 * 1024
"""The settings of one group, and of all whose settings are longer than ordinary ones, are not longer."""
MAX_FORBIDDEN: Final = 20_000
"""So many pairs of a group and a topic can be forbidden."""


class Groups:
    """The table of groups; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._settings = settings
        self._refusals = Rarely()
        self.data_version = DataVersion(0, clock.now_ms(), 0)
        self.table = {group: SubscriptionGroupConfig(group) for group in SYSTEM_GROUPS}
        self._large: dict[str, int] = {}
        """The bytes that long settings of groups take."""
        self.forbidden: dict[str, dict[str, int]] = {}
        """By group and topic: a set of bits."""
        self.on_dirty: Callable[[], None] | None = None
        """Called when the table has to be saved."""
        self.get: Callable[[str], SubscriptionGroupConfig | None] = self.table.get

    def refuse(self, group: str) -> str | None:
        """Why a request cannot mean this group; None if it is there, or if its name is legal."""
        return None if group in self.table else refuse_group(group)

    # File

    def load(self, saved: SubscriptionGroupTable | None) -> None:
        """Take over what was saved."""
        if saved is not None:
            found = saved.subscription_group_table
            legal = legal_names({key: group.group_name for key, group in found.items()}, "groups")
            for name in legal:
                self.table[name] = found[name]
                self._note_size(found[name])
            self.forbidden.update(saved.forbidden_table)
            self.data_version = saved.data_version

    def snapshot(self) -> SubscriptionGroupTable:
        forbidden = {group: dict(bits) for group, bits in self.forbidden.items()}
        return SubscriptionGroupTable(self.data_version, forbidden, dict(self.table))

    def take_over(self, copied: SubscriptionGroupTable) -> None:
        """Have the groups of the master and their version, and only these besides the system's."""
        found = copied.subscription_group_table
        legal = legal_names({key: group.group_name for key, group in found.items()}, "groups")
        wanted = {name: found[name] for name in legal}
        gone = self.table.keys() - wanted.keys() - {*SYSTEM_GROUPS}
        changed = [group for name, group in wanted.items() if self.table.get(name) != group]
        is_known = self.data_version == copied.data_version and self.forbidden == copied.forbidden_table
        if not gone and not changed and is_known:
            return
        for name in gone:
            del self.table[name]
            self._large.pop(name, None)
        for group in changed:
            self.table[group.group_name] = group
            self._note_size(group)
        self.forbidden = {group: dict(bits) for group, bits in copied.forbidden_table.items()}
        self._changed(copied.data_version)

    # Groups

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The settings of a group, which is made if need be and if that is allowed."""
        found = self.table.get(group)
        if found is None and self._may_make(group):
            log.info("group %s is made with the default settings", group)
            found = self.table[group] = SubscriptionGroupConfig(group)
            self._changed()
        return found

    def _may_make(self, group: str) -> bool:
        config = self._settings.broker
        if not config.auto_create_subscription_group and not (
            config.enable_create_sys_group and is_system_group(group)
        ):
            return False
        return refuse_group(group) is None and self._has_room(group)

    def _has_room(self, group: str) -> bool:
        if len(self.table) < self._settings.broker.max_auto_create_subscription_groups:
            return True
        if count := self._refusals.count():
            log.warning(
                "group %s is not made, nor were %d more: there are %d groups "
                "(maxAutoCreateSubscriptionGroups)",
                *(group, count - 1, len(self.table)),
            )
        return False

    def has_room_for(self, groups: Iterable[str]) -> bool:
        """Whether an administrator may make all of these that are not there."""
        new = len(set(groups) - self.table.keys())
        return not new or len(self.table) + new <= self._settings.broker.max_subscription_groups

    def refuse_size(self, groups: Sequence[SubscriptionGroupConfig]) -> str | None:
        """Why the settings of these groups are too long to be kept."""
        large = dict(self._large)
        for group in groups:
            size = len(msgspec.json.encode(group))
            if size > MAX_GROUP_BYTES:
                return f"the settings of group {group.group_name} take {size} of {MAX_GROUP_BYTES} bytes"
            large.pop(group.group_name, None)
            if size > _ORDINARY_BYTES:
                large[group.group_name] = size
        if sum(large.values()) > MAX_LARGE_BYTES and len(large) > len(self._large):
            return f"groups with long settings take more than {MAX_LARGE_BYTES} bytes; delete some of them"
        return None

    def update(self, group: SubscriptionGroupConfig) -> None:
        """Make a group, or change it."""
        self.update_all([group])

    def update_all(self, groups: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or change several, as one change."""
        for group in groups:
            self.table[group.group_name] = group
            self._note_size(group)
        self._changed()

    def _note_size(self, group: SubscriptionGroupConfig) -> None:
        size = len(msgspec.json.encode(group))
        if size > _ORDINARY_BYTES:
            self._large[group.group_name] = size
        else:
            self._large.pop(group.group_name, None)

    def delete(self, group: str) -> bool:
        """Forget a group and what it is forbidden; its offsets are not known here."""
        self.forbidden.pop(group, None)
        self._large.pop(group, None)
        if self.table.pop(group, None) is None:
            return False
        log.info("group %s is deleted", group)
        self._changed()
        return True

    # What groups may not do

    def is_forbidden(self, group: str, topic: str, bit: int = READ_FORBIDDEN) -> bool:
        topics = self.forbidden.get(group)
        return topics is not None and topics.get(topic, 0) & bit != 0

    def refuse_to_forbid(self, group: str, topic: str) -> str | None:
        """Why nothing more can be noted of what groups may not do."""
        if topic in self.forbidden.get(group, {}) or sum(map(len, self.forbidden.values())) < MAX_FORBIDDEN:
            return None
        return f"{MAX_FORBIDDEN} groups and topics are forbidden each other already; allow some of them again"

    def forbid(self, group: str, topic: str, bit: int = READ_FORBIDDEN, *, on: bool = True) -> None:
        """Forbid a group something with a topic, or allow it again."""
        bits = self.forbidden.get(group, {}).get(topic, 0)
        wanted = bits | bit if on else bits & ~bit
        if wanted == bits:
            return
        topics = self.forbidden.setdefault(group, {})
        if wanted:
            topics[topic] = wanted
        else:
            del topics[topic]
            if not topics:
                del self.forbidden[group]
        self._changed()

    def _changed(self, version: DataVersion | None = None) -> None:
        self.data_version = version or self.data_version.after(self._clock.now_ms())
        if self.on_dirty is not None:
            self.on_dirty()
