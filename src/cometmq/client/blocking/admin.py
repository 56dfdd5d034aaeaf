"""The blocking admin client; what each method does is said by `cometmq.aio.Admin`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from cometmq.client.admin import admin as aio
from cometmq.client.admin.admin import TOOLS_GROUP
from cometmq.client.admin.results import (
    BrokerProgress,
    ClusterInfo,
    GroupConnection,
    MemberInfo,
    QueueProgress,
    QueueStatus,
)
from cometmq.client.blocking.loop import Face
from cometmq.client.consumer.pull_request import PullReply
from cometmq.client.names import TRACE_TOPIC
from cometmq.client.settings import ClientOptions, ClientSettings
from cometmq.client.subscription import Expression
from cometmq.client.trace.query import MessageTrace
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.model.route import TopicRoute
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import PERM_READ, PERM_WRITE, TopicConfig
from cometmq.wire.bodies.heartbeat import ALL


class Admin(Face[aio.Admin]):
    """Looks after a cluster."""

    def __init__(self, settings: ClientSettings | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(aio.Admin(settings, **options))

    # Topics.

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        cluster: str | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: str | None = None,
    ) -> None:
        """Create a topic on every master, or change it."""
        self._run(
            self.aio.create_topic(
                topic, queues=queues, cluster=cluster, perm=perm, order=order, attributes=attributes
            )
        )

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic and its messages."""
        self._run(self.aio.delete_topic(topic, cluster=cluster))

    def topics(self) -> list[str]:
        """The names of all topics."""
        return self._run(self.aio.topics())

    def put_topic(self, broker: str, config: TopicConfig, *, attributes: str | None = None) -> None:
        """Have one broker create a topic, or change it."""
        self._run(self.aio.put_topic(broker, config, attributes=attributes))

    def await_topic(self, config: TopicConfig, *broker_names: str) -> None:
        """Wait until the name server shows a topic on these brokers as it was made or changed."""
        self._run(self.aio.await_topic(config, *broker_names))

    def topic_configs(self, broker: str) -> dict[str, TopicConfig]:
        """How all topics are set up on a broker."""
        return self._run(self.aio.topic_configs(broker))

    def topic_config(self, broker: str, topic: str) -> TopicConfig | None:
        """How a topic is set up on a broker."""
        return self._run(self.aio.topic_config(broker, topic))

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups that read a topic, or have read it."""
        return self._run(self.aio.groups_of_topic(topic))

    def topic_route(self, topic: str) -> TopicRoute | None:
        """Where the queues of a topic are."""
        return self._run(self.aio.topic_route(topic))

    def topic_status(self, topic: str) -> dict[MessageQueue, QueueStatus]:
        """What each queue of a topic holds."""
        return self._run(self.aio.topic_status(topic))

    # Servers.

    def cluster_info(self, namesrv: str | None = None) -> ClusterInfo:
        """All brokers and clusters, as one name server knows them, or this one."""
        return self._run(self.aio.cluster_info(namesrv))

    def masters(self, cluster: str | None = None) -> Mapping[str, str]:
        """The masters of a cluster, or of all, by broker name."""
        return self._run(self.aio.masters(cluster))

    def broker_info(self, broker: str) -> dict[str, str]:
        """What a broker says about its state."""
        return self._run(self.aio.broker_info(broker))

    def broker_config(self, broker: str) -> dict[str, str]:
        """Every setting of a broker."""
        return self._run(self.aio.broker_config(broker))

    def set_broker_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a broker."""
        self._run(self.aio.set_broker_config(broker, changes))

    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers."""
        return self.aio.name_servers()

    def name_server_config(self, namesrv: str) -> dict[str, str]:
        """Every setting of a name server."""
        return self._run(self.aio.name_server_config(namesrv))

    def set_name_server_config(self, namesrv: str, changes: Mapping[str, str]) -> None:
        """Change settings of a name server."""
        self._run(self.aio.set_name_server_config(namesrv, changes))

    def wipe_write_permission(self, broker_name: str) -> int:
        """Have no producer send to a broker name any more."""
        return self._run(self.aio.wipe_write_permission(broker_name))

    def add_write_permission(self, broker_name: str) -> int:
        """Let producers send to a broker name again."""
        return self._run(self.aio.add_write_permission(broker_name))

    # Groups.

    def create_group(self, group: str | SubscriptionGroupConfig, *, cluster: str | None = None) -> None:
        """Create a consumer group on every master, or change its settings."""
        self._run(self.aio.create_group(group, cluster=cluster))

    def delete_group(self, group: str, *, clean_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a consumer group."""
        self._run(self.aio.delete_group(group, clean_offsets=clean_offsets, cluster=cluster))

    def groups(self, broker: str) -> dict[str, SubscriptionGroupConfig]:
        """How all groups are set up on a broker."""
        return self._run(self.aio.groups(broker))

    def group_connection(self, broker: str, group: str) -> GroupConnection | None:
        """The members of a group that are connected to a broker."""
        return self._run(self.aio.group_connection(broker, group))

    def member_info(self, broker: str, group: str, client_id: str) -> MemberInfo:
        """What a member of a group reads, in its own words."""
        return self._run(self.aio.member_info(broker, group, client_id))

    def broker_progress(self, broker: str) -> BrokerProgress:
        """How far all groups are in the queues of a broker."""
        return self._run(self.aio.broker_progress(broker))

    def consumer_progress(self, group: str, topic: str | None = None) -> dict[MessageQueue, QueueProgress]:
        """How far a group is in its queues."""
        return self._run(self.aio.consumer_progress(group, topic))

    def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that a group has committed for a queue."""
        return self._run(self.aio.consumer_offset(group, queue))

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset of a group that has no members."""
        self._run(self.aio.commit_offset(group, queue, offset))

    def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """Have a group go on at the first message of a time, or at the end (-1)."""
        return self._run(self.aio.reset_offsets(group, topic, timestamp_ms, force=force))

    def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Let one group go on in a topic where another one is."""
        self._run(self.aio.clone_offsets(source, target, topic))

    # Queues and messages.

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read."""
        return self._run(self.aio.queues(topic))

    def read(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        expression: Expression = ALL,
        wait_ms: int = 0,
        group: str = TOOLS_GROUP,
    ) -> PullReply:
        """Messages of a queue from an offset on."""
        return self._run(
            self.aio.read(
                queue,
                offset,
                max_messages=max_messages,
                expression=expression,
                wait_ms=wait_ms,
                group=group,
            )
        )

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return self._run(self.aio.max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue."""
        return self._run(self.aio.min_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset that a queue had reached at a time."""
        return self._run(self.aio.search_offset(queue, timestamp_ms))

    def view_message(self, offset_msg_id: str) -> StoredMessage:
        """The message with this offset id."""
        return self._run(self.aio.view_message(offset_msg_id))

    def query_messages(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 32,
        begin_ms: int = 0,
        end_ms: int = aio.FOR_EVER_MS,
    ) -> list[StoredMessage]:
        """The messages of a topic with this key."""
        return self._run(
            self.aio.query_messages(topic, key, max_messages=max_messages, begin_ms=begin_ms, end_ms=end_ms)
        )

    def message_by_id(self, topic: str, msg_id: str) -> StoredMessage | None:
        """The message of a topic with this id of its producer."""
        return self._run(self.aio.message_by_id(topic, msg_id))

    def message_trace(
        self, msg_id: str, *, trace_topic: str = TRACE_TOPIC, max_messages: int = 64
    ) -> MessageTrace:
        """What became of the message with this id of its producer, as its clients wrote it down."""
        return self._run(self.aio.message_trace(msg_id, trace_topic=trace_topic, max_messages=max_messages))
