"""Bodies about consumers as administrators read them, in Java's form.

Rules kept here: a queue as the key of a map is a whole object, which Java's reader and ours understand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cometmq.broker.groups.online import Client, ConsumerGroup
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.bodies.json_body import queue_key as key_of
from cometmq.wire.json import fastjson
from cometmq.wire.json.fastjson import BeanKey


def queue_key(broker_name: str, topic: str, queue_id: int) -> BeanKey:
    """A queue of a broker as the key of a map."""
    return key_of(MessageQueue(topic, broker_name, queue_id))


def encode_consumer_connection(group: ConsumerGroup) -> bytes:
    """The members of a consumer group, and what it subscribes to."""
    return fastjson.dumps(
        {
            "connectionSet": _connections(group.members.values()),
            "consumeFromWhere": group.consume_from_where.value,
            "consumeType": group.consume_type.value,
            "messageModel": group.message_model.value,
            "subscriptionTable": {
                topic: subscription_members(each) for topic, each in group.subscriptions.items()
            },
        }
    )


def encode_producer_connection(clients: Iterable[Client]) -> bytes:
    """The members of a producer group."""
    return fastjson.dumps({"connectionSet": _connections(clients)})


def _connections(clients: Iterable[Client]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": client.connection.remote_address,
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
        for client in clients
    ]


def encode_producers(groups: Mapping[str, Iterable[Client]], wall_clock_ahead_ms: int) -> bytes:
    """All producers by group; the wall clock is that much ahead of the clock that heartbeats are seen by."""
    data = {
        name: [
            {
                "clientId": client.client_id,
                "language": client.language,
                "lastUpdateTimestamp": client.seen_ms + wall_clock_ahead_ms,
                "remoteIP": f"/{client.connection.remote_address}",
                "version": client.version,
            }
            for client in clients
        ]
        for name, clients in groups.items()
    }
    return fastjson.dumps({"data": data})


def subscription_members(subscription: SubscriptionData) -> dict[str, Any]:
    """A subscription as an object."""
    return {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": list(subscription.code_set),
        "expressionType": subscription.expression_type,
        "subString": subscription.sub_string,
        "subVersion": subscription.sub_version,
        "tagsSet": list(subscription.tags_set),
        "topic": subscription.topic,
    }


def encode_offsets(broker_name: str, topic: str, offsets: Mapping[int, int]) -> bytes:
    """The offsets of a reset, by queue."""
    table = {queue_key(broker_name, topic, queue_id): offset for queue_id, offset in offsets.items()}
    return fastjson.dumps({"offsetTable": table})


def encode_offset_list(broker_name: str, topic: str, offsets: Mapping[int, int]) -> bytes:
    """The offsets of a reset as a list, for clients that cannot read a map with such keys."""
    members = [
        {"brokerName": broker_name, "offset": offset, "queueId": queue_id, "topic": topic}
        for queue_id, offset in offsets.items()
    ]
    return fastjson.dumps({"offsetTable": members})
