"""Producers and consumers, as the client instance sees them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ConsumerData, ProducerData

if TYPE_CHECKING:
    from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo
    from cometmq.wire.headers.send import CheckTransactionStateRequest

MemberKind = Literal["producer", "consumer"]


class GroupMember(Protocol):
    """A producer or a consumer, for its client instance."""

    @property
    def group(self) -> str:
        """The name of the group as brokers know it, with its namespace."""

    @property
    def kind(self) -> MemberKind: ...

    def topics(self) -> Collection[str]:
        """The topics whose routes are kept up to date."""

    def heartbeat_entry(self) -> ProducerData | ConsumerData: ...

    def route_changed(self, topic: str) -> None:
        """The route of a topic has changed."""


class ConsumerMember(GroupMember, Protocol):
    """A consumer, for requests from brokers."""

    def consumer_ids_changed(self) -> None:
        """Rebalance: the members of the group have changed, or a broker came back."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets of a topic's queues in memory."""

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult: ...


@runtime_checkable
class TransactionMember(GroupMember, Protocol):
    """A transactional producer, for requests from brokers."""

    def check_transaction(
        self, address: str, header: CheckTransactionStateRequest, message: StoredMessage
    ) -> None:
        """The broker at this address checks back how a transaction ended; the reply is sent later."""
