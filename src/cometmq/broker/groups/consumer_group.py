"""One consumer group that is online: its members and what it subscribes to."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from cometmq.broker.groups.inconsistency import Interests
from cometmq.remoting.connection import Connection
from cometmq.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

log = logging.getLogger("cometmq.broker")


class Client(msgspec.Struct, eq=False):
    """A client on one connection."""

    client_id: str
    connection: Connection
    language: str
    version: int
    seen_ms: int
    """When its last heartbeat came, on the monotonic clock."""

    def __str__(self) -> str:
        return f"{self.client_id} ({self.connection.remote_address})"


class ConsumerGroup:
    """The members of a group and its subscriptions; as long as it has members."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        self.members: dict[Connection, Client] = {}
        self._connections: dict[str, dict[Connection, None]] = {}
        """By client id: while a client changes its connection it has two."""
        self.subscriptions: dict[str, SubscriptionData] = {}
        """By topic."""
        self.revision = 0
        """Counts changes of what a pull of a member depends on."""
        self.fingerprint = 0
        """Of the heartbeat that came last."""
        self.interests = Interests()
        self.noted_difference: str | None = None
        """How members differ in what they subscribe to, as the log says it."""

    def take_member(self, client: Client, consumer: ConsumerData) -> bool:
        """Register or refresh a member; the answer is whether it is new."""
        if (self.consume_type, self.message_model) != (consumer.consume_type, consumer.message_model):
            self.consume_type, self.message_model = consumer.consume_type, consumer.message_model
            self.revision += 1
        self.consume_from_where = consumer.consume_from_where
        before = self.members.get(client.connection)
        if before is not None and before.client_id != client.client_id:
            log.warning("%s of %s calls itself %s now", before, self.name, client.client_id)
            self._disconnect(before)
        self.members[client.connection] = client
        self._connections.setdefault(client.client_id, {})[client.connection] = None
        if before is None:
            log.info("consumer %s of %s is here", client, self.name)
        return before is None

    def take_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take over what a member subscribes to; the answer is whether topics came or went."""
        changed = False
        topics = set()
        for subscription in subscriptions:
            topic = subscription.topic
            topics.add(topic)
            known = self.subscriptions.get(topic)
            if known is None:
                changed = True
                log.info("group %s subscribes to %s with %r", self.name, topic, subscription.sub_string[:200])
            elif subscription.sub_version <= known.sub_version:
                continue
            self.subscriptions[topic] = subscription
            self.revision += 1
        for topic in self.subscriptions.keys() - topics:
            changed = True
            log.info("group %s no longer subscribes to %s", self.name, topic)
            del self.subscriptions[topic]
            self.revision += 1
        return changed

    def drop_member(self, connection: Connection) -> Client | None:
        """Forget a member; the answer is who it was."""
        client = self.members.pop(connection, None)
        if client is not None:
            self._disconnect(client)
        return client

    def _disconnect(self, client: Client) -> None:
        connections = self._connections[client.client_id]
        del connections[client.connection]
        if not connections:
            del self._connections[client.client_id]
            self.interests.drop(client.client_id)

    def client(self, client_id: str) -> Client | None:
        """A member by its id; the newest of its connections counts."""
        connections = self._connections.get(client_id)
        return None if connections is None else self.members[next(reversed(connections))]

    @property
    def client_ids(self) -> list[str]:
        """The ids of all members, each once."""
        return list(self._connections)

    @property
    def is_broadcast(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING
