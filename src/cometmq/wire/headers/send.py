"""Headers of sending: messages, batches, replies, messages sent back, transactions, recalls.

Rules kept here:
- The long and the one-letter form of a send have the same Python names, so that one handler serves both.
- The answer of a send also declares the two plain keys that every broker adds to it.
"""

from __future__ import annotations

from msgspec import field

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, Int64, request_header, response_header
from cometmq.wire.headers.common import RpcRequest, TopicRequest


@request_header(RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
class SendMessageRequest(TopicRequest, kw_only=True):
    """Store a message, or deliver a reply; long field names."""

    producer_group: str
    topic: str
    default_topic: str
    """The topic whose settings a new topic takes."""
    default_topic_queue_nums: Int32
    queue_id: Int32
    """Below 0 the broker chooses."""
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    """True says that the body is a batch, whatever the code."""


@request_header(
    RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
)
class SendMessageRequestV2(TopicRequest, kw_only=True):
    """Store a message or a batch, or deliver a reply; one-letter field names."""

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: Int32 = field(name="d")
    queue_id: Int32 = field(name="e")
    sys_flag: Int32 = field(name="f")
    born_timestamp: Int64 = field(name="g")
    flag: Int32 = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: Int32 | None = field(name="j", default=None)
    unit_mode: bool | None = field(name="k", default=None)
    max_reconsume_times: Int32 | None = field(name="l", default=None)
    batch: bool | None = field(name="m", default=None)
    broker_name: str | None = field(name="n", default=None)


@response_header(
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
class SendMessageResponse(Header, kw_only=True):
    """Where the message was stored; for a batch, its first message and all ids."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = field(name="MSG_REGION", default=None)
    trace_on: bool | None = field(name="TRACE_ON", default=None)


@request_header(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
class ReplyMessageRequest(TopicRequest, kw_only=True):
    """Bring a reply to the client that waits for it."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


@request_header(RequestCode.CONSUMER_SEND_MSG_BACK)
class ConsumerSendMsgBackRequest(RpcRequest, kw_only=True):
    """Have a message delivered again later, or put among the dead letters."""

    offset: Int64
    """Where the message is in the commit log."""
    group: str
    delay_level: Int32
    """0 lets the broker choose; below 0 the message is a dead letter at once."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


@request_header(RequestCode.END_TRANSACTION)
class EndTransactionRequest(RpcRequest, kw_only=True):
    """Commit a transactional message or roll it back."""

    producer_group: str
    tran_state_table_offset: Int64
    """The queue offset of the half message."""
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


@request_header(RequestCode.CHECK_TRANSACTION_STATE)
class CheckTransactionStateRequest(RpcRequest, kw_only=True):
    """Ask a producer how its transaction ended; the body is the half message."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@response_header(RequestCode.CHECK_TRANSACTION_STATE)
class CheckTransactionStateResponse(Header, kw_only=True):
    """How a transaction ended; producers say it with END_TRANSACTION instead."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32


@request_header(RequestCode.RESUME_CHECK_HALF_MESSAGE)
class ResumeCheckHalfMessageRequest(Header, kw_only=True):
    """Start checking a half message again that was given up."""

    topic: str | None = None
    msg_id: str | None = None


@request_header(RequestCode.RECALL_MESSAGE)
class RecallMessageRequest(TopicRequest, kw_only=True):
    """Take a timer message back before it is due."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


@response_header(RequestCode.RECALL_MESSAGE)
class RecallMessageResponse(Header, kw_only=True):
    """The message that was taken back."""

    msg_id: str
