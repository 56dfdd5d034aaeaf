"""How far the members of a group are that each get all messages, as far as the broker can know.

Such members keep their offsets themselves. The broker remembers what each of them pulled, so that one that
changes between this broker and a proxy, or asks through a proxy without knowing its offset, goes on where it
was.

Rules kept here:
- Offsets are kept in memory by group, topic, client and queue. A client that is gone is forgotten after two
  minutes, one that only stopped pulling after five.
- The smallest offset of a queue is committed every now and then, for a group name of its own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.groups.online import Clients
from cometmq.broker.settings import Settings
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.store.message_store import MessageStore
from cometmq.wire.headers.pull import PullMessageRequest

PROXY_FOR_BROADCAST: Final = 1
"""The source of a pull that a proxy makes for such a member."""
SHADOW_SUFFIX: Final = "@broadcast"
MAX_CLIENTS: Final = 100_000
"""With this many clients remembered, a further one is not."""

_NO_HOST: Final = "BROADCAST"


class _Pulled(msgspec.Struct):
    from_proxy: bool
    offsets: dict[int, int]
    seen_ms: int


class BroadcastOffsets:
    """What the members of broadcast groups pulled; belongs to the event loop."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        store: MessageStore,
        offsets: ConsumerOffsets,
        clients: Clients,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._clients = clients
        self._offsets = offsets
        self._store = store
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
        is_whole = queue.min_offset == 0 and not self._store.reader.cold_places(topic, queue_id, 0, 1)
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
