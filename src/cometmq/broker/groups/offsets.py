"""Consumer offsets: how far each group is in each queue.

Rules kept here:
- Offsets are kept by `topic@group`, as they are saved. They are saved every few seconds: after a kill a group
  may get messages again, and never misses one.
- A reset by an administrator counts until the group has been told of it, once per queue; who asks meanwhile
  gets it at once.
- How far a group has pulled is kept in memory only.
- The offsets of the broker's own groups say how far its services are. Only the services move them.
- Members of a broadcast group keep their offsets themselves. The broker remembers in memory what each of them
  pulled, so that one that changes between this broker and a proxy goes on where it was. A client that is gone
  is forgotten after two minutes, one that only stopped pulling after five. The smallest offset of each queue
  is committed every few seconds, under a group name of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from cometmq.broker.groups.online import Clients
from cometmq.broker.settings import Settings
from cometmq.model.java_numbers import LARGEST_LONG
from cometmq.model.names import OWN_GROUPS
from cometmq.model.topic import DataVersion
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.tables import TOPIC_GROUP_SEPARATOR, ConsumerOffsetTable, QueueOffsets
from cometmq.wire.headers.pull import PullMessageRequest

log = logging.getLogger("cometmq.broker")

MAX_OFFSETS: Final = 2_000_000
"""With this many offsets of all groups and queues together, a commit for another queue is refused."""
NONE = -1
"""The offset of a group that has none."""
PROXY_FOR_BROADCAST: Final = 1
"""The source of a pull that a proxy makes for such a member."""
SHADOW_SUFFIX: Final = "@broadcast"
MAX_CLIENTS: Final = 100_000
"""With this many clients remembered, a further one is not."""
_NO_HOST: Final = "BROADCAST"

TOO_MANY_OFFSETS: Final = (
    "the broker has too many offsets of consumer groups; delete groups that nobody needs"
)


class ConsumerOffsets:
    """Committed, pulled and reset offsets; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._settings = settings
        self._version_step = settings.broker.consumer_offset_update_version_step
        self._commits = 0
        self.data_version = DataVersion(0, clock.now_ms(), 0)
        self.table: dict[str, QueueOffsets] = {}
        self._pulled: dict[str, QueueOffsets] = {}
        self._resets: dict[str, QueueOffsets] = {}
        self._count = 0
        self.is_dirty = False
        """Whether anything changed since this was set to False."""

    # File

    def load(self, saved: ConsumerOffsetTable | None) -> None:
        """Take over what was saved."""
        if saved is not None:
            self.table.update(saved.offset_table)
            for key, queues in saved.offset_table.items():
                if any(abs(offset) > LARGEST_LONG for offset in queues.values()):
                    log.error("%s has offsets of over 64 bits in the file, and begins without them", key)
                    self.table[key] = {
                        each: offset for each, offset in queues.items() if abs(offset) <= LARGEST_LONG
                    }
            self.data_version = saved.data_version
            self._recount()

    def take_over(self, copied: ConsumerOffsetTable) -> None:
        """Have the offsets of the master; groups that it does not know keep theirs."""
        changed = {
            key: queues for key, queues in copied.offset_table.items() if self.table.get(key) != queues
        }
        if changed or self.data_version != copied.data_version:
            self.load(ConsumerOffsetTable(copied.data_version, changed))
            self.is_dirty = True

    def snapshot(self) -> ConsumerOffsetTable:
        offsets = {key: dict(queues) for key, queues in self.table.items()}
        return ConsumerOffsetTable(self.data_version, offsets)

    # Offsets

    def commit(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that a group has consumed a queue up to an offset; nothing comes of it for an own group."""
        if group not in OWN_GROUPS:
            self._commit(client_host, group, topic, queue_id, offset)

    def commit_own(self, service: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note how far a service of the broker is."""
        self._commit(service, group, topic, queue_id, offset)

    def _commit(self, client_host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self.table.get(key := f"{topic}@{group}")
        if queues is None:
            queues = self.table[key] = {}
        before = queues.get(queue_id)
        if before == offset:
            return
        if before is None:
            self._count += 1
        queues[queue_id] = offset
        self.is_dirty = True
        if before is not None and offset < before:
            log.warning(
                "%s sets the offset of %s in %s-%d back from %d to %d",
                *(client_host, group, topic, queue_id, before, offset),
            )
        self._commits += 1
        if self._commits % self._version_step == 0:
            self._next_version()

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether no further offset is taken, except for a queue in which the group has one."""
        return self._count >= MAX_OFFSETS

    def _recount(self) -> None:
        self._count = sum(map(len, self.table.values()))

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The offset that a group goes on from; -1 if it has none."""
        key = f"{topic}@{group}"
        if self._resets and self._settings.broker.use_server_side_reset_offset:
            reset = self._resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self.table.get(key)
        return NONE if queues is None else queues.get(queue_id, NONE)

    def queues_of(self, group: str, topic: str) -> QueueOffsets | None:
        """All offsets of a group in a topic."""
        return self.table.get(f"{topic}@{group}")

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note how far a group has pulled a queue."""
        queues = self._pulled.get(key := f"{topic}@{group}")
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has pulled a queue; what it has consumed if it has not pulled since the start."""
        offset = self._pulled.get(f"{topic}@{group}", {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    # Resets

    def assign_reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Let a group go on from here, also if it commits something else before it is told."""
        if group in OWN_GROUPS:
            return
        key = f"{topic}@{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        queues = self.table.setdefault(key, {})
        self._count += queue_id not in queues
        queues[queue_id] = offset  # for a group that nobody tells: it is not online
        self.is_dirty = True

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The reset that a group has not been told of yet; it counts as told from now on."""
        if not self._resets:
            return None
        queues = self._resets.get(key := f"{topic}@{group}")
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def has_reset(self, topic: str, group: str, queue_id: int) -> bool:
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}@{group}", ())

    # Groups and topics

    def topics_by_group(self) -> dict[str, set[str]]:
        """The topics in which each group has an offset."""
        topics: dict[str, set[str]] = {}
        for topic, group in self._keys():
            topics.setdefault(group, set()).add(topic)
        return topics

    def topics_of_group(self, group: str) -> set[str]:
        return {topic for topic, each in self._keys() if each == group}

    def groups_of_topic(self, topic: str) -> set[str]:
        return {group for each, group in self._keys() if each == topic}

    def min_offsets(self, topic: str, without: Iterable[str] = ()) -> dict[int, int]:
        """By queue, how far the group is that is least far."""
        left_out = set(without)
        least: dict[int, int] = {}
        for each, group in self._keys():
            if each == topic and group not in left_out:
                for queue_id, offset in self.table[f"{topic}@{group}"].items():
                    least[queue_id] = min(offset, least.get(queue_id, offset))
        return least

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let one group go on where another one is."""
        queues = self.table.get(f"{topic}@{source}")
        if queues is not None and target not in OWN_GROUPS:
            self._count += len(queues) - len(self.table.get(key := f"{topic}@{target}", ()))
            self.table[key] = dict(queues)
            self._next_version()

    def remove(self, group: str, topic: str | None = None) -> None:
        """Forget the offsets of a group, in one topic or in all."""
        if group not in OWN_GROUPS:
            self._remove(lambda each, other: other == group and topic in (None, each))

    def remove_topic(self, topic: str) -> None:
        """Forget how far any group is in a topic."""
        self._remove(lambda each, _: each == topic)

    def _remove(self, wanted: Callable[[str, str], bool]) -> None:
        for table in (self.table, self._pulled, self._resets):
            for key in list(table):
                topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
                if separator and wanted(topic, group):
                    del table[key]
                    self.is_dirty = True
        self._recount()

    def _keys(self) -> Iterator[tuple[str, str]]:
        for key in self.table:
            topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
            if separator:
                yield topic, group

    def _next_version(self) -> None:
        self.data_version = self.data_version.after(self._clock.now_ms())
        self.is_dirty = True


class _Pulled(msgspec.Struct):
    from_proxy: bool
    offsets: dict[int, int]
    seen_ms: int


@dataclass(eq=False, repr=False)
class BroadcastOffsets:
    """The offsets that members of broadcast groups pulled; belongs to the event loop."""

    _settings: Settings
    _clock: Clock
    _store: MessageStore
    _offsets: ConsumerOffsets
    _clients: Clients

    def __post_init__(self) -> None:
        self._members: dict[tuple[str, str], dict[str, _Pulled]] = {}
        """By group and topic, then by client id."""
        self.count = 0

    def pulled(self, header: PullMessageRequest, connection: Connection, offset: int) -> None:
        """A member pulls a queue from this offset on."""
        client_id = self._client_id(header, connection)
        if client_id is None:
            return
        clients = self._members.setdefault((header.consumer_group, header.topic), {})
        known = clients.get(client_id)
        from_proxy = header.request_source == PROXY_FOR_BROADCAST
        if known is None:
            if self.count >= MAX_CLIENTS:
                return
            known = clients[client_id] = _Pulled(from_proxy, {}, 0)
            self.count += 1
        known.from_proxy = from_proxy
        known.offsets[header.queue_id] = offset
        known.seen_ms = self._clock.monotonic_ms()

    def initial_offset(self, header: PullMessageRequest, connection: Connection) -> int | None:
        """The offset that a member has to go on from; None if it knows that itself."""
        client_id = self._client_id(header, connection)
        if client_id is None:
            return None
        from_proxy = header.request_source == PROXY_FOR_BROADCAST
        known = self._members.get((header.consumer_group, header.topic), {}).get(client_id)
        if (from_proxy and header.queue_offset < 0) or (known is not None and known.from_proxy != from_proxy):
            return self._remembered(header, known)
        return None

    def _client_id(self, header: PullMessageRequest, connection: Connection) -> str | None:
        if not self._settings.broker.enable_broadcast_offset_store:
            return None
        if header.request_source == PROXY_FOR_BROADCAST:
            return header.proxy_forward_client_id
        group = self._clients.consumers.get(header.consumer_group)
        client = None if group is None else group.members.get(connection)
        return None if client is None else client.client_id

    def _remembered(self, header: PullMessageRequest, known: _Pulled | None) -> int:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset = -1 if known is None else known.offsets.get(queue_id, -1)
        if offset < 0:
            offset = self._offsets.query(group + SHADOW_SUFFIX, topic, queue_id)
        if offset >= 0:
            return offset
        queue = self._store.queues.find(topic, queue_id)
        if queue is None or not queue.min_offset < queue.max_offset:
            return 0 if queue is None else queue.max_offset
        is_whole = queue.min_offset == 0 and not self._store.reader.cold_ranges(topic, queue_id, 0, 1)
        return 0 if is_whole else queue.max_offset

    def commit(self) -> None:
        """Forget who is gone, and commit how far the last of the others is in each queue."""
        for (group, topic), clients in list(self._members.items()):
            self._forget_gone(group, clients)
            if not clients:
                del self._members[group, topic]
                continue
            least: dict[int, int] = {}
            for client in clients.values():
                for queue_id, offset in client.offsets.items():
                    least[queue_id] = min(offset, least.get(queue_id, offset))
            for queue_id, offset in least.items():
                self._offsets.commit(_NO_HOST, group + SHADOW_SUFFIX, topic, queue_id, offset)

    def _forget_gone(self, group: str, clients: dict[str, _Pulled]) -> None:
        config = self._settings.broker
        now_ms = self._clock.monotonic_ms()
        for client_id, known in list(clients.items()):
            is_online = self._clients.find_consumer(group, client_id) is not None
            limit_s = (
                config.broadcast_offset_expire_max_second
                if is_online
                else config.broadcast_offset_expire_second
            )
            if now_ms - known.seen_ms > limit_s * 1000:
                del clients[client_id]
                self.count -= 1
