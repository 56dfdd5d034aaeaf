"""Which requests RocketMQ's broker hands to which of its processors: a metric is told by processor.

There is no queue before the handlers here in which a request could wait for its turn. What a processor has is
what it has begun and waits with: for the disk, for a worker, or for a name server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cometmq.remoting.metrics.counters import RemotingMetrics
from cometmq.wire.codes import RequestCode

SEND: Final = "send"
ADMIN: Final = "admin"
"""Every request that has no other processor."""

_CODES: Final = {
    SEND: (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.RECALL_MESSAGE,
    ),
    "pull": (
        RequestCode.PULL_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    ),
    "lite_pull": (RequestCode.LITE_PULL_MESSAGE,),
    "ack": (
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    ),
    "query_message": (RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID),
    "heartbeat": (RequestCode.HEART_BEAT,),
    "client_manager": (RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG),
    "consumer_manager": (
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
    ),
    "transaction": (RequestCode.END_TRANSACTION,),
    "reply": (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
}
_PROCESSOR_OF: Final = {int(code): name for name, codes in _CODES.items() for code in codes}


def running(ports: Iterable[RemotingMetrics]) -> dict[str, int]:
    """How many requests of each processor are begun and not answered."""
    counts = dict.fromkeys((*_CODES, ADMIN), 0)
    for each in ports:
        for code, counted in list(each.codes.items()):
            counts[_PROCESSOR_OF.get(code, ADMIN)] += counted.running
    return counts
