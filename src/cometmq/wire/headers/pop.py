"""Headers of popping: taking messages for a time, acknowledging them, asking whether there are some.

BATCH_ACK_MESSAGE says everything in its body, and POP_ROLLBACK needs nothing.
"""

from __future__ import annotations

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, Int64, request_header, response_header
from cometmq.wire.headers.common import TopicRequest


@request_header(RequestCode.POP_MESSAGE)
class PopMessageRequest(TopicRequest, kw_only=True):
    """Take messages of a topic, invisible to others for a time."""

    consumer_group: str
    topic: str
    queue_id: Int32
    """-1 is every queue."""
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


@response_header(RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE)
class PopMessageResponse(Header, kw_only=True):
    """What a consumer needs to build the handles of the messages in the body."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@request_header(RequestCode.PEEK_MESSAGE)
class PeekMessageRequest(TopicRequest, kw_only=True):
    """Read the messages that a pop would take, and leave them."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


@request_header(RequestCode.ACK_MESSAGE)
class AckMessageRequest(TopicRequest, kw_only=True):
    """Acknowledge a message that was popped."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    """The handle of the message."""
    offset: Int64


@request_header(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
class ChangeInvisibleTimeRequest(TopicRequest, kw_only=True):
    """Keep a message that was popped invisible for another time from now on."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    """The handle of the message."""
    offset: Int64
    invisible_time: Int64


@response_header(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
class ChangeInvisibleTimeResponse(Header, kw_only=True):
    """What the new handle of the message is made of."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@request_header(RequestCode.NOTIFICATION)
class NotificationRequest(TopicRequest, kw_only=True):
    """Wait until a topic has messages for a group."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool = False
    attempt_id: str | None = None


@response_header(RequestCode.NOTIFICATION)
class NotificationResponse(Header, kw_only=True):
    """Whether there are messages, or too many who wait."""

    has_msg: bool
    polling_full: bool = False


@request_header(RequestCode.POLLING_INFO)
class PollingInfoRequest(TopicRequest, kw_only=True):
    """Ask how many pops wait for a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32


@response_header(RequestCode.POLLING_INFO)
class PollingInfoResponse(Header, kw_only=True):
    """How many pops wait."""

    polling_num: Int32
