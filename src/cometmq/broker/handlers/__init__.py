"""The requests that a broker answers, one family a module.

To add a request code: declare it in `wire/codes.py`, its header in `wire/headers/`, and write a method marked
with `@handles` in the module of its family here. Its parameters are those of `header`, `request` and
`connection` that it needs. `HANDLERS` lists the families, `READS` in `pull.py` the frequent reads.
"""

from __future__ import annotations

from cometmq.broker.handlers.broker_admin import BrokerAdminHandlers, ColdReadHandlers
from cometmq.broker.handlers.consumer_admin import ConsumerAdminHandlers
from cometmq.broker.handlers.consumer_progress import ConsumerProgressHandlers
from cometmq.broker.handlers.group_admin import GroupAdminHandlers
from cometmq.broker.handlers.offset import OffsetHandlers
from cometmq.broker.handlers.own_requests import OnceHandlers, RecordsHandlers
from cometmq.broker.handlers.pull import PopHandlers
from cometmq.broker.handlers.query import QueryHandlers
from cometmq.broker.handlers.replication import ReplicationHandlers
from cometmq.broker.handlers.send import RecallHandlers, ReplyHandlers, SendBackHandlers, SendHandlers
from cometmq.broker.handlers.session import AssignmentHandlers, LockHandlers, SessionHandlers
from cometmq.broker.handlers.topic_admin import TopicAdminHandlers
from cometmq.broker.handlers.transaction import TransactionHandlers

HANDLERS = (
    SendHandlers,
    SendBackHandlers,
    OnceHandlers,
    RecordsHandlers,
    TransactionHandlers,
    ReplyHandlers,
    RecallHandlers,
    PopHandlers,
    AssignmentHandlers,
    SessionHandlers,
    OffsetHandlers,
    QueryHandlers,
    LockHandlers,
    TopicAdminHandlers,
    GroupAdminHandlers,
    BrokerAdminHandlers,
    ConsumerAdminHandlers,
    ConsumerProgressHandlers,
    ColdReadHandlers,
    ReplicationHandlers,
)
