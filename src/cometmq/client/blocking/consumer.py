"""The blocking consumers; their namesakes in `cometmq.aio` say what each method does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar, Unpack, overload

from cometmq.client.blocking.loop import BlockingGroupClient, blocking, on_loop
from cometmq.client.consumer import pull as aio_pull
from cometmq.client.consumer import push as aio_push
from cometmq.client.consumer.listener import ListenerFunction
from cometmq.client.consumer.pop import consumer as aio_pop
from cometmq.client.consumer.pop.settings import PopOptions, PopSettings
from cometmq.client.consumer.settings import PullOptions, PullSettings, PushOptions, PushSettings
from cometmq.client.subscription import Expression
from cometmq.wire.bodies.heartbeat import ALL

F = TypeVar("F", bound=ListenerFunction)


class PushConsumer(BlockingGroupClient[aio_push.PushConsumer]):
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
        self._wrap(aio_push.PushConsumer(group, settings, **options))

    def _wrap(self, client: aio_push.PushConsumer) -> None:
        super().__init__(client)
        self.settings = client.settings
        self._ended = threading.Event()

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

    def stop(self) -> None:
        """Wait for running listeners, then leave the group; a second call does nothing."""
        super().stop()
        self._ended.set()

    def run(self) -> None:
        """Start, consume until the process gets SIGINT or SIGTERM, then stop in good order.

        On another thread than the main one, which gets no signals, consume until somebody calls `stop`.
        """
        with _set_by_stop_signals(self._ended), self:
            self._ended.wait()

    unsubscribe = blocking(aio_push.PushConsumer.unsubscribe)
    suspend = on_loop(aio_push.PushConsumer.suspend)
    resume = on_loop(aio_push.PushConsumer.resume)
    assignment = on_loop(aio_push.PushConsumer.assignment)


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
        self._wrap(aio_pop.PopConsumer(group, settings, **options))


class PullConsumer(BlockingGroupClient[aio_pull.PullConsumer]):
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

    def __exit__(self, *raised: object) -> None:
        self._run(self.aio.__aexit__(*raised))

    subscribe = blocking(aio_pull.PullConsumer.subscribe)
    unsubscribe = blocking(aio_pull.PullConsumer.unsubscribe)
    assign = blocking(aio_pull.PullConsumer.assign)
    assignment = on_loop(aio_pull.PullConsumer.assignment)
    message_queues = blocking(aio_pull.PullConsumer.message_queues)
    poll = blocking(aio_pull.PullConsumer.poll)
    pull = blocking(aio_pull.PullConsumer.pull)
    send_back = blocking(aio_pull.PullConsumer.send_back)
    pause = on_loop(aio_pull.PullConsumer.pause)
    resume = on_loop(aio_pull.PullConsumer.resume)
    seek = blocking(aio_pull.PullConsumer.seek)
    seek_to_begin = blocking(aio_pull.PullConsumer.seek_to_begin)
    seek_to_end = blocking(aio_pull.PullConsumer.seek_to_end)
    commit = blocking(aio_pull.PullConsumer.commit)
    committed = blocking(aio_pull.PullConsumer.committed)
    min_offset = blocking(aio_pull.PullConsumer.min_offset)
    max_offset = blocking(aio_pull.PullConsumer.max_offset)
    search_offset = blocking(aio_pull.PullConsumer.search_offset)


@contextmanager
def _set_by_stop_signals(event: threading.Event) -> Iterator[None]:
    """On the main thread, have SIGINT and SIGTERM set an event; the second one interrupts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def received(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    previous = {each: signal.signal(each, received) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
