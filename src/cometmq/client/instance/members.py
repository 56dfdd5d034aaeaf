"""What a client instance knows of the producers and consumers that belong to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ConsumerData, ProducerData

if TYPE_CHECKING:
    from cometmq.client.producer.transaction_checks import TransactionQuestion
    from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult, ConsumerRunningInfo

MemberKind = Literal["producer", "consumer"]


class GroupMember(Protocol):
    """A producer or a consumer, as its instance sees it."""

    @property
    def group(self) -> str:
        """The name of the group as brokers know it, with its namespace."""

    @property
    def kind(self) -> MemberKind: ...

    def topics(self) -> Collection[str]:
        """The topics whose routes are to be kept fresh."""

    def heartbeat_entry(self) -> ProducerData | ConsumerData: ...

    def route_changed(self, topic: str) -> None:
        """The route of a topic is not what it was."""


class ConsumerMember(GroupMember, Protocol):
    """A consumer: what brokers may ask of it."""

    def consumer_ids_changed(self) -> None:
        """The members of the group have changed, or a broker came back: share the queues anew."""

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets of a topic's queues that are held here."""

    async def running_info(self, with_stacks: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: StoredMessage, broker_name: str) -> ConsumeDirectlyResult: ...


@runtime_checkable
class TransactionMember(GroupMember, Protocol):
    """A producer that sends in transactions: what brokers may ask of it."""

    def transaction_asked(self, question: TransactionQuestion) -> None:
        """A broker wants to know how a transaction ended; the answer goes to it later."""
