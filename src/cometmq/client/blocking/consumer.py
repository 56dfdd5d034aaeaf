"""The blocking consumers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Mapping
from types import FrameType, TracebackType
from typing import Any, TypeVar, Unpack, overload

from cometmq.client.blocking.loop import Face
from cometmq.client.consumer import pull as aio_pull
from cometmq.client.consumer import push as aio_push
from cometmq.client.consumer.listener import ListenerFunction
from cometmq.client.consumer.pop import consumer as aio
from cometmq.client.consumer.pop.consumer import PopOptions, PopSettings
from cometmq.client.consumer.pull_request import PullReply
from cometmq.client.consumer.settings import PullOptions, PullSettings, PushOptions, PushSettings
from cometmq.client.settings import ServiceState
from cometmq.client.subscription import Expression
from cometmq.model.message import StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.heartbeat import ALL

F = TypeVar("F", bound=ListenerFunction)


class PushConsumer(Face[aio_push.PushConsumer]):
    """Reads topics and hands their messages to listeners.

    ```python
    consumer = PushConsumer("billing", namesrv="127.0.0.1:9876")

    @consumer.subscribe("orders", "paid || refunded")
    def bill(message: StoredMessage) -> None:
        ...            # returning acknowledges; raising redelivers with growing delay

    consumer.run()     # until interrupted; finishes what it holds
    ```
    """

    def __init__(
        self, group: str, settings: PushSettings | None = None, **options: Unpack[PushOptions]
    ) -> None:
        super().__init__(aio_push.PushConsumer(group, settings, **options))
        self.settings = self.aio.settings
        self._ended = threading.Event()

    @property
    def group(self) -> str:
        return self.aio.group

    @property
    def client_id(self) -> str:
        return self.aio.client_id

    @property
    def state(self) -> ServiceState:
        return self.aio.state

    @overload
    def subscribe(self, topic: str, expression: Expression = ..., *, listener: F) -> F: ...

    @overload
    def subscribe(self, topic: str, expression: Expression = ...) -> Callable[[F], F]: ...

    def subscribe(
        self, topic: str, expression: Expression = ALL, *, listener: F | None = None
    ) -> F | Callable[[F], F]:
        """Read a topic; the listener is given as an argument, or decorated with the result."""

        def register(function: F) -> F:
            async def subscribe() -> F:
                return self.aio.subscribe(topic, expression, listener=function)

            return self._run(subscribe())

        return register if listener is None else register(listener)

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self._run(self.aio.unsubscribe(topic))

    def stop(self) -> None:
        """Finish what listeners are busy with, then leave the group; a second time does nothing."""
        super().stop()
        self._ended.set()

    def run(self) -> None:
        """Start, consume until the process is interrupted or told to end, then stop in good order.

        On another thread than the main one, which gets no signals, until somebody calls `stop`.
        """
        with _StopSignalsSet(self._ended), self:
            self._ended.wait()

    def suspend(self) -> None:
        """Pull nothing for now; what is held is still consumed."""
        self._run(_call(self.aio.suspend))

    def resume(self) -> None:
        """Pull again."""
        self._run(_call(self.aio.resume))

    def assignment(self) -> set[MessageQueue]:
        """The queues that this member of the group reads at the moment."""
        return self._run(_call(self.aio.assignment))


class PullConsumer(Face[aio_pull.PullConsumer]):
    """Reads messages when it is asked to.

    ```python
    with PullConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders")
        for message in consumer.poll(timeout_s=5):
            ...
    ```
    """

    def __init__(
        self, group: str, settings: PullSettings | None = None, **options: Unpack[PullOptions]
    ) -> None:
        super().__init__(aio_pull.PullConsumer(group, settings, **options))
        self.settings = self.aio.settings

    @property
    def group(self) -> str:
        return self.aio.group

    @property
    def client_id(self) -> str:
        return self.aio.client_id

    @property
    def state(self) -> ServiceState:
        return self.aio.state

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self.aio.__aexit__(kind, error, trace))

    def subscribe(self, topic: str, expression: Expression = ALL) -> None:
        """Share a topic with the other members of the group."""
        self._run(self.aio.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more."""
        self._run(self.aio.unsubscribe(topic))

    def assign(self, queues: Collection[MessageQueue], expression: Expression = ALL) -> None:
        """Read exactly these queues, whatever other members of the group read."""
        self._run(self.aio.assign(queues, expression))

    def assignment(self) -> set[MessageQueue]:
        """The queues that are read at the moment."""
        return self._run(_call(self.aio.assignment))

    def message_queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic."""
        return self._run(self.aio.message_queues(topic))

    def poll(self, timeout_s: float | None = None, *, max_count: int | None = None) -> list[StoredMessage]:
        """The next messages of one queue; an empty list if none came in time."""
        return self._run(self.aio.poll(timeout_s, max_count=max_count))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        *,
        expression: Expression = ALL,
        wait: bool = False,
        timeout_s: float | None = None,
    ) -> PullReply:
        """Read a queue at an offset; with `wait`, a broker that has nothing there waits for something."""
        return self._run(
            self.aio.pull(queue, offset, max_count, expression=expression, wait=wait, timeout_s=timeout_s)
        )

    def send_back(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Have a message delivered to the group again, through its retry topic."""
        self._run(self.aio.send_back(message, delay_level))

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Give no messages of these queues for now."""
        self._run(_call(self.aio.pause, queues))

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Give messages of these queues again."""
        self._run(_call(self.aio.resume, queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at another offset of a queue that is read here."""
        self._run(self.aio.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the oldest message of the queue."""
        self._run(self.aio.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that is sent to the queue."""
        self._run(self.aio.seek_to_end(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was polled so far, or these offsets."""
        self._run(self.aio.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """The offset that is committed for a queue; None if there is none."""
        return self._run(self.aio.committed(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of a queue."""
        return self._run(self.aio.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of a queue will get."""
        return self._run(self.aio.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset that a queue had reached at a time."""
        return self._run(self.aio.search_offset(queue, timestamp_ms))


T = TypeVar("T")


async def _call(function: Callable[..., T], *arguments: Any) -> T:
    """Call something on the client's own loop."""
    return function(*arguments)


class _StopSignalsSet:
    """While it is entered on the main thread, SIGINT and SIGTERM set an event; the second one interrupts."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event
        self._previous: list[tuple[signal.Signals, Any]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM):
                self._previous.append((each, signal.signal(each, self._told)))

    def __exit__(self, *_: object) -> None:
        for each, previous in self._previous:
            signal.signal(each, previous)

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self._event.is_set():
            raise KeyboardInterrupt
        self._event.set()


class PopConsumer(PushConsumer):
    """Takes messages of topics for a time, and hands them to listeners; many consumers share one queue.

    ```python
    consumer = PopConsumer("billing", namesrv="127.0.0.1:9876")

    @consumer.subscribe("orders", "paid || refunded")
    def bill(message: StoredMessage) -> None:
        ...            # returning acknowledges; raising redelivers with growing delay

    consumer.run()     # until interrupted; finishes what it is busy with, gives the rest back
    ```
    """

    def __init__(
        self, group: str, settings: PopSettings | None = None, **options: Unpack[PopOptions]
    ) -> None:
        consumer = aio.PopConsumer(group, settings, **options)
        Face.__init__(self, consumer)
        self.settings = consumer.settings
        self._ended = threading.Event()
