"""What a consumer needs of the engine that runs inside it, whether that pulls or pops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cometmq.client.consumer.consume_statistics import ConsumeStatistics
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.rebalance import Rebalancer
from cometmq.model.queue import MessageQueue


class KnownOffsets(Protocol):
    """How far a group is, as far as that is known here."""

    def known(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """The offsets in memory, of one topic or of all."""


class HeldQueues(Protocol):
    """What is read at the moment."""

    @property
    def table(self) -> Mapping[MessageQueue, ProcessQueue]: ...


class Loops(Protocol):
    """What gets messages."""

    paused: bool


class Running(Protocol):
    """What a consumer says about itself comes from here."""

    @property
    def started_ms(self) -> int: ...

    @property
    def offsets(self) -> KnownOffsets: ...

    @property
    def queues(self) -> HeldQueues: ...

    @property
    def statistics(self) -> ConsumeStatistics: ...


class ConsumerEngine(Running, Protocol):
    """The running parts of a consumer with listeners."""

    @property
    def rebalancer(self) -> Rebalancer: ...

    @property
    def loops(self) -> Loops: ...

    def start(self) -> None:
        """Begin to read."""

    async def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Let the group go on at other offsets."""

    async def stop(self) -> None:
        """Finish what listeners are busy with."""
