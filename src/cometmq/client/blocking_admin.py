"""The blocking admin client; what each method does is said by `cometmq.aio.Admin`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from cometmq.client import admin as aio
from cometmq.client.admin_bodies import ClusterInfo, QueueProgress, QueueStatus
from cometmq.client.face import Face
from cometmq.client.names import TRACE_TOPIC
from cometmq.client.settings import ClientOptions, ClientSettings
from cometmq.client.trace_query import MessageTrace
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.model.route import TopicRoute
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import PERM_READ, PERM_WRITE


class Admin(Face[aio.Admin]):
    """Looks after a cluster."""

    def __init__(self, settings: ClientSettings | None = None, **options: Unpack[ClientOptions]) -> None:
        super().__init__(aio.Admin(settings, **options))

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

    def topic_route(self, topic: str) -> TopicRoute | None:
        """Where the queues of a topic are."""
        return self._run(self.aio.topic_route(topic))

    def topic_status(self, topic: str) -> dict[MessageQueue, QueueStatus]:
        """What each queue of a topic holds."""
        return self._run(self.aio.topic_status(topic))

    def cluster_info(self) -> ClusterInfo:
        """All brokers and clusters."""
        return self._run(self.aio.cluster_info())

    def masters(self, cluster: str | None = None) -> Mapping[str, str]:
        """The masters of a cluster, or of all, by broker name."""
        return self._run(self.aio.masters(cluster))

    def create_group(self, group: str | SubscriptionGroupConfig, *, cluster: str | None = None) -> None:
        """Create a consumer group on every master, or change its settings."""
        self._run(self.aio.create_group(group, cluster=cluster))

    def delete_group(self, group: str, *, clean_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a consumer group."""
        self._run(self.aio.delete_group(group, clean_offsets=clean_offsets, cluster=cluster))

    def consumer_progress(self, group: str, topic: str | None = None) -> dict[MessageQueue, QueueProgress]:
        """How far a group is in its queues."""
        return self._run(self.aio.consumer_progress(group, topic))

    def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that a group has committed for a queue."""
        return self._run(self.aio.consumer_offset(group, queue))

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
