"""What became of a message in a group, from its offset and its members."""

from __future__ import annotations

import pytest

from cometmq.client.admin.admin import _track_type
from cometmq.client.admin.results import GroupConnection, GroupMember, TrackType
from cometmq.model.message import Host, StoredMessage
from cometmq.wire.bodies.heartbeat import SubscriptionData

MESSAGE = StoredMessage(
    topic="orders",
    body=b"x",
    properties={"TAGS": "paid"},
    broker_name="broker-a",
    queue_id=0,
    queue_offset=5,
    commit_log_offset=0,
    store_size=0,
    body_crc=0,
    flag=0,
    sys_flag=0,
    born_timestamp_ms=0,
    born_host=Host("10.0.0.1", 1),
    store_timestamp_ms=0,
    store_host=Host("10.0.0.2", 2),
    reconsume_times=0,
    prepared_transaction_offset=0,
    offset_msg_id="",
)


def connected(
    consume_type: str = "CONSUME_PASSIVELY", tags: tuple[str, ...] = (), model: str = "CLUSTERING"
) -> GroupConnection:
    subscription = SubscriptionData("orders", " || ".join(tags) or "*", tags_set=tags)
    return GroupConnection((GroupMember("one"),), {"orders": subscription}, consume_type, model)


@pytest.mark.parametrize(
    ("offset", "connection", "track_type"),
    [
        (6, connected(), TrackType.CONSUMED),
        (6, None, TrackType.CONSUMED),
        (6, connected(tags=("paid", "open")), TrackType.CONSUMED),
        (6, connected(tags=("open",)), TrackType.CONSUMED_BUT_FILTERED),
        (5, connected(), TrackType.NOT_CONSUME_YET),
        (None, connected("CONSUME_POP"), TrackType.NOT_CONSUME_YET),
        (5, connected("CONSUME_ACTIVELY"), TrackType.PULL),
        (6, connected("CONSUME_ACTIVELY"), TrackType.CONSUMED),
        (5, None, TrackType.NOT_ONLINE),
        (None, None, TrackType.NOT_ONLINE),
        (6, connected(model="BROADCASTING"), TrackType.CONSUME_BROADCASTING),
    ],
)
def test_offset_and_members_tell_what_became_of_a_message(
    offset: int | None, connection: GroupConnection | None, track_type: TrackType
) -> None:
    """The message has offset 5."""
    assert _track_type(MESSAGE, offset, connection) is track_type
