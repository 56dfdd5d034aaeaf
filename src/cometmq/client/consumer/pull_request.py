"""Pull requests: one request for messages of a queue, and its response.

Rules kept here:
- Pulls follow the broker's suggestion which replica to read from; a replica is never sent offsets to commit.
- A record that cannot be read does not lose later ones: reading continues after the last good record, or
  after the bad one if it came first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.subscription import is_tags
from cometmq.model.errors import ClientError, ResponseError
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID
from cometmq.wire.bodies.heartbeat import SubscriptionData
from cometmq.wire.codes import V4_1_0_SNAPSHOT, RequestCode, ResponseCode
from cometmq.wire.frame.command import Body
from cometmq.wire.headers.pull import PullMessageRequest, PullMessageResponse
from cometmq.wire.record.pulled import decode_pulled

if TYPE_CHECKING:
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

COMMIT_OFFSET: Final = 1
MAY_SUSPEND: Final = 2
WITH_SUBSCRIPTION: Final = 4
LITE_PULL: Final = 16


class PullKind(Enum):
    """Who pulls: its fixed flags and its request code."""

    PUSH = (0, RequestCode.PULL_MESSAGE)
    PULL = (WITH_SUBSCRIPTION, RequestCode.PULL_MESSAGE)
    LITE = (WITH_SUBSCRIPTION | LITE_PULL, RequestCode.LITE_PULL_MESSAGE)


class RawPull(msgspec.Struct, frozen=True):
    """The response to a pull with its records still encoded."""

    code: int
    status: str | None
    """The status in the broker's words."""
    next_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int
    """Added to the offsets in the records, which differ from the queue's for static topics."""
    body: Body

    def decode(self, queue: MessageQueue, subscription: SubscriptionData, offset: int) -> PullReply:
        """The messages of the queue that match; the pull began at `offset`."""
        next_offset = self.next_offset
        messages: Sequence[StoredMessage] = ()
        if self.code == ResponseCode.SUCCESS:
            tags, delta = subscription.tags_set, self.offset_delta
            messages, error = decode_pulled(self.body, queue, tags, offset_delta=delta)
            if error is not None:
                next_offset = (messages[-1].queue_offset if messages else offset) + 1
                log.error("a message of %s cannot be read, going on at %d: %s", queue, next_offset, error)
        offset_illegal = self.code == ResponseCode.PULL_OFFSET_MOVED
        return PullReply(messages, next_offset, self.min_offset, self.max_offset, offset_illegal)


class PullReply(msgspec.Struct, frozen=True):
    """The messages of a pull."""

    messages: Sequence[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    offset_illegal: bool = False
    """The queue has no such offset; `next_offset` is the nearest one."""


@dataclass(eq=False, repr=False)
class PullRequests:
    """Pull requests of one group."""

    _instance: ClientInstance
    _calls: BrokerCalls
    _group: str
    _advised: dict[MessageQueue, int] = field(default_factory=dict)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer read."""
        self._advised.pop(queue, None)

    async def pull_raw(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        max_count: int,
        *,
        kind: PullKind,
        commit_offset: int = 0,
        suspend_ms: int = 0,
        timeout_s: float,
        with_subscription: bool = False,
        max_bytes: int | None = None,
        bulk: bool | None = None,
    ) -> RawPull:
        """Pull messages from the offset.

        With `suspend_ms`, a broker that has none waits that long. With `bulk`, a CometMQ broker returns many
        more at once.
        """
        address, is_replica = await self._calls.address_of(queue, self._advised.get(queue, MASTER_ID))
        if not is_tags(subscription):
            self._check_can_filter(address, subscription)
        flags, code = kind.value
        flags |= MAY_SUSPEND if suspend_ms else 0
        flags |= COMMIT_OFFSET if commit_offset > 0 and not is_replica else 0
        flags |= WITH_SUBSCRIPTION if with_subscription else 0
        header = PullMessageRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_count,
            sys_flag=flags,
            commit_offset=commit_offset,
            suspend_timeout_millis=suspend_ms,
            sub_version=0 if kind is PullKind.LITE and is_tags(subscription) else subscription.sub_version,
            subscription=subscription.sub_string if flags & WITH_SUBSCRIPTION else None,
            expression_type=subscription.expression_type,
            max_msg_bytes=max_bytes,
            bulk=bulk,
            target_broker_name=queue.broker_name,
        )
        answer = await self._instance.remoting.call(address, code, header, timeout_s=timeout_s)
        if answer.code not in _ANSWERS:
            remark = answer.remark or "no reason given"
            raise ResponseError(f"{address} refused to read {queue} at {offset}: {remark}", code=answer.code)
        said = answer.header(PullMessageResponse)
        self._advised[queue] = said.suggest_which_broker_id
        return RawPull(
            answer.code,
            answer.remark,
            said.next_begin_offset,
            said.min_offset,
            said.max_offset,
            said.offset_delta or 0,
            answer.body,
        )

    def _check_can_filter(self, address: str, subscription: SubscriptionData) -> None:
        version = self._instance.heartbeats.versions.get(address)
        if version is not None and version < V4_1_0_SNAPSHOT:
            raise ClientError(
                f"the broker at {address} is too old to filter by {subscription.expression_type}; use tags"
            )


_ANSWERS: Final = frozenset(
    {
        ResponseCode.SUCCESS.value,
        ResponseCode.PULL_NOT_FOUND.value,
        ResponseCode.PULL_RETRY_IMMEDIATELY.value,
        ResponseCode.PULL_OFFSET_MOVED.value,
    }
)
