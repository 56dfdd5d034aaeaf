"""Connected clients: the producers and consumers of every group, as their heartbeats register them.

Rules kept here:
- A client counts as long as its connection lasts and heartbeats come; after that it leaves all groups.
- The members of a group are notified when somebody joins or leaves it or its topics change. Changes within
  `NOTICE_DELAY_S` share one notice: a thousand clients that start together do not make a million notices.
- Of two subscriptions of a group to a topic the newer one counts; a topic that a heartbeat lacks is no longer
  subscribed to.
- Members whose subscriptions differ are named in the log, once for each difference. With
  `rejectInconsistentSubscription` a new client that differs is refused; a member that changes stays.
- A heartbeat is registered in one turn of the event loop. Its size is limited, far above what a client with
  many consumers needs, so that the turn stays short.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from cometmq.broker.groups.groups import Groups
from cometmq.broker.groups.subscriptions import Interests, interest_of
from cometmq.broker.pull.sql_filters import Compiled, ConsumerFilters
from cometmq.broker.settings import Settings
from cometmq.broker.time_slices import SlicedQueue
from cometmq.model.errors import CometError, RemotingError
from cometmq.ports.clock import Clock
from cometmq.remoting.connection import Connection
from cometmq.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Body
from cometmq.wire.header.schema import encode_fields
from cometmq.wire.headers.session import NotifyConsumerIdsChangedRequest

log = logging.getLogger("cometmq.broker")

MAX_HEARTBEAT_BYTES: Final = 2 * 1024 * 1024
MAX_GROUPS_OF_HEARTBEAT: Final = 1_000
"""Producer and consumer groups together."""
MAX_SUBSCRIPTIONS_OF_HEARTBEAT: Final = 4_000
"""Of all groups together."""
MAX_NAME: Final = 1_024
"""The longest client id."""
MAX_GROUPS: Final = 100_000
"""With this many groups of a kind online, a client of another one is not registered."""
MAX_GROUPS_OF_CONNECTION: Final = 5_000
"""In this many groups, a connection is not registered in another one."""
NOTICE_DELAY_S: Final = 0.02
"""How long a notice waits for further changes to the group."""
COLLECTED_NOTICE_DELAY_S: Final = 15.0
"""The delay with `realTimeNotifyConsumerChange` = false."""


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
        """Register or refresh a member; returns whether it is new."""
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
        """Take over the subscriptions of a member; returns whether topics came or went."""
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
        """Forget a member, and return it."""
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


def refuse_large_body(body: Body) -> None:
    """Raise `CometError` for a heartbeat that is not even read."""
    if len(body) > MAX_HEARTBEAT_BYTES:
        raise _too_large(f"of {len(body)} bytes", f"{MAX_HEARTBEAT_BYTES} bytes")


def refuse_large(data: HeartbeatData) -> None:
    """Raise `CometError` for a heartbeat that says too much."""
    groups = len(data.producer_data_set) + len(data.consumer_data_set)
    if groups > MAX_GROUPS_OF_HEARTBEAT:
        raise _too_large(f"of {groups} groups", f"{MAX_GROUPS_OF_HEARTBEAT} groups")
    subscriptions = sum(len(consumer.subscription_data_set) for consumer in data.consumer_data_set)
    if subscriptions > MAX_SUBSCRIPTIONS_OF_HEARTBEAT:
        raise _too_large(
            f"of {subscriptions} subscriptions", f"{MAX_SUBSCRIPTIONS_OF_HEARTBEAT} subscriptions"
        )
    if len(data.client_id) > MAX_NAME:
        raise _too_large(f"with a client id of {len(data.client_id)} characters", f"{MAX_NAME} characters")


def _too_large(found: str, allowed: str) -> CometError:
    return CometError(
        f"a heartbeat {found} is refused, {allowed} are allowed; start fewer consumers and producers with "
        "one client id",
        code=ResponseCode.ILLEGAL_OPERATION,
    )


class Clients:
    """All clients of a broker; belongs to the event loop."""

    def __init__(self, settings: Settings, clock: Clock, groups: Groups, filters: ConsumerFilters) -> None:
        self._filters = filters
        self._settings = settings
        self._clock = clock
        self._groups = groups
        self.producers: dict[str, dict[Connection, Client]] = {}
        """By group."""
        self.consumers: dict[str, ConsumerGroup] = {}
        """By group; a group is here as long as it has a member."""
        self._groups_of: dict[Connection, tuple[set[str], set[str]]] = {}
        """The producer groups and the consumer groups of a connection."""
        self.generation = 0
        """Counts changes to consumer groups; what was derived from them is good as long as this stays."""
        self.inconsistencies = 0
        """How often members of a group were found to differ in what they subscribe to."""
        self.refused_consumers = 0
        """How often a consumer was refused for that."""
        self._to_notify: set[str] = set()
        self._notices: SlicedQueue[str] = SlicedQueue(self._notify_one)
        self._notice_timer: asyncio.TimerHandle | None = None

    # Producers

    def register_producer(self, group: str, client: Client) -> None:
        """A client says that it produces in a group."""
        members = self.producers.get(group)
        if members is None:
            if len(self.producers) >= MAX_GROUPS:
                raise _too_many(group)
            members = self.producers[group] = {}
        if client.connection not in members:
            self._refuse_many(client.connection, group)
            log.info("producer %s of %s is here", client, group)
        members[client.connection] = client
        self._memberships(client.connection)[0].add(group)

    def unregister_producer(self, group: str, connection: Connection) -> None:
        """A client no longer produces in a group."""
        members = self.producers.get(group)
        client = None if members is None else members.pop(connection, None)
        if members is None or client is None:
            return
        log.info("producer %s of %s left", client, group)
        if not members:
            del self.producers[group]
        self._groups_of.get(connection, (set(), set()))[0].discard(group)

    # Consumers

    def register_consumer(
        self,
        consumer: ConsumerData,
        client: Client,
        *,
        with_subscriptions: bool,
        compiled: Mapping[str, Compiled] = MappingProxyType({}),
    ) -> None:
        """A client says what it consumes in a group; raises `CometError` if that is refused.

        What is `compiled` are the SQL92 expressions that the broker did not know yet.
        """
        name = consumer.group_name
        group = self.consumers.get(name)
        if group is None and len(self.consumers) >= MAX_GROUPS:
            raise _too_many(name)
        if with_subscriptions and group is not None:
            self._compare(group, consumer, client)
        if group is None or client.connection not in group.members:
            self._refuse_many(client.connection, name)
        if group is None:
            group = self.consumers[name] = ConsumerGroup(name)
            self.generation += 1
        revision = group.revision
        changed = group.take_member(client, consumer)
        if with_subscriptions:
            changed |= group.take_subscriptions(consumer.subscription_data_set)
            group.interests.set(client.client_id, interest_of(consumer.subscription_data_set))
            self._note_difference(group)
        self._memberships(client.connection)[1].add(name)
        if group.revision != revision:
            self.generation += 1
        if changed:
            self._notify_soon(name)
        if with_subscriptions:
            self._filters.register(name, consumer.subscription_data_set, compiled)

    def _compare(self, group: ConsumerGroup, consumer: ConsumerData, client: Client) -> None:
        if not self._settings.broker.reject_inconsistent_subscription or group.client(client.client_id):
            return
        difference = group.interests.against(client.client_id, interest_of(consumer.subscription_data_set))
        if difference is not None:
            self.inconsistencies += 1
            self.refused_consumers += 1
            text = (
                f"consumer group {group.name}: {difference}; all consumers of a group have to subscribe alike"
            )
            log.warning("refused: %s", text)
            raise CometError(text, code=ResponseCode.ILLEGAL_OPERATION)

    def _note_difference(self, group: ConsumerGroup) -> None:
        difference = group.interests.difference
        if difference == group.noted_difference:
            return
        group.noted_difference = difference
        if difference is None:
            log.info("consumer group %s: all consumers subscribe alike again", group.name)
        else:
            self.inconsistencies += 1
            log.warning(
                "consumer group %s: %s; messages will be missed until all subscribe alike",
                *(group.name, difference),
            )

    def unregister_consumer(self, name: str, connection: Connection) -> None:
        """A client no longer consumes in a group."""
        group = self.consumers.get(name)
        client = None if group is None else group.drop_member(connection)
        if group is None or client is None:
            return
        log.info("consumer %s of %s left", client, name)
        self._groups_of.get(connection, (set(), set()))[1].discard(name)
        if group.members:
            self._note_difference(group)
            self._notify_soon(name)
        else:
            del self.consumers[name]
            self.generation += 1
            self._filters.unregister(name)

    def find_consumer(self, group: str, client_id: str) -> Client | None:
        """A member of a group by its id."""
        found = self.consumers.get(group)
        return None if found is None else found.client(client_id)

    @property
    def inconsistent_groups(self) -> list[str]:
        """The groups whose members differ in what they subscribe to."""
        return [group.name for group in list(self.consumers.values()) if group.noted_difference is not None]

    # The end of clients

    def connection_closed(self, connection: Connection) -> None:
        """Whoever was on this connection is gone."""
        producers, consumers = self._groups_of.pop(connection, ((), ()))
        for group in list(producers):
            self.unregister_producer(group, connection)
        for group in list(consumers):
            self.unregister_consumer(group, connection)

    def remove_silent(self) -> None:
        """Close the connections of clients that have sent no heartbeat for too long."""
        oldest = self._clock.monotonic_ms() - self._settings.broker.channel_expired_timeout
        tables = [*self.producers.values(), *(group.members for group in self.consumers.values())]
        silent = {each.connection for members in tables for each in members.values() if each.seen_ms < oldest}
        for connection in silent:
            log.warning("closing %s: it sent no heartbeat in time", connection.remote_address)
            connection.close("no heartbeat", abort=True)
            self.connection_closed(connection)

    def _refuse_many(self, connection: Connection, group: str) -> None:
        producers, consumers = self._groups_of.get(connection, ((), ()))
        if len(producers) + len(consumers) >= MAX_GROUPS_OF_CONNECTION:
            raise CometError(
                f"group {group} is not registered: the connection is in {MAX_GROUPS_OF_CONNECTION} groups",
                code=ResponseCode.SYSTEM_BUSY,
            )

    def _memberships(self, connection: Connection) -> tuple[set[str], set[str]]:
        groups = self._groups_of.get(connection)
        if groups is None:
            groups = self._groups_of[connection] = (set(), set())
        return groups

    # Notices

    def _notify_soon(self, group: str) -> None:
        settings = self._groups.get(group)
        if settings is not None and not settings.notify_consumer_ids_changed_enable:
            return
        if not self._settings.broker.notify_consumer_ids_changed_enable:
            return
        self._to_notify.add(group)
        if self._notice_timer is None:
            immediate = self._settings.broker.real_time_notify_consumer_change
            delay_s = NOTICE_DELAY_S if immediate else COLLECTED_NOTICE_DELAY_S
            self._notice_timer = asyncio.get_running_loop().call_later(delay_s, self._notify)

    def _notify(self) -> None:
        self._notice_timer = None
        names, self._to_notify = self._to_notify, set()
        self._notices.add(names)
        self._notices.run()

    def _notify_one(self, name: str) -> None:
        group = self.consumers.get(name)
        if group is None:
            return
        fields = encode_fields(NotifyConsumerIdsChangedRequest(consumer_group=name))
        for connection in group.members:
            try:
                connection.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields)
            except RemotingError:  # it is about to be removed, which makes a notice of its own
                pass

    def stop(self) -> None:
        """Send no more notices."""
        if self._notice_timer is not None:
            self._notice_timer.cancel()
            self._notice_timer = None


def _too_many(group: str) -> CometError:
    return CometError(
        f"group {group} is not registered: {MAX_GROUPS} groups are online already",
        code=ResponseCode.SYSTEM_BUSY,
    )
