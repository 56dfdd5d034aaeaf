"""The blocking consumers; their namesakes in `cometmq.aio` say what each method does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from cometmq.client.blocking.loop import BlockingClient, BlockingGroupClient, blocking, on_loop
from cometmq.client.consumer import pull as aio_pull
from cometmq.client.consumer import push as aio_push
from cometmq.client.consumer.interceptor import ConsumeInterceptor
from cometmq.client.consumer.listener import ListenerDecorator, ListenerFunction
from cometmq.client.consumer.lite_pull import message_loop as aio_loop
from cometmq.client.consumer.pop import consumer as aio_pop
from cometmq.client.consumer.pop.settings import PopOptions, PopSettings
from cometmq.client.consumer.rebalance import RebalanceListener
from cometmq.client.consumer.settings import PullOptions, PullSettings, PushOptions, PushSettings
from cometmq.client.options import documented
from cometmq.client.serializer import Serializer
from cometmq.client.subscription import Expression
from cometmq.model.message import StoredMessage, V
from cometmq.ports.stop_signals import StopSignals
from cometmq.ports.system import WAIT_S
from cometmq.wire.bodies.heartbeat import ALL

F = TypeVar("F", bound=Callable[..., Any])


@documented(PushSettings, ("serializer", "rebalance_listener", "interceptors"))
class PushConsumer(BlockingGroupClient[aio_push.PushConsumer[V]], Generic[V]):
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
        self,
        group: str,
        settings: PushSettings | None = None,
        *,
        serializer: Serializer[V] | None = None,
        rebalance_listener: RebalanceListener | None = None,
        interceptors: Sequence[ConsumeInterceptor] = (),
        **options: Unpack[PushOptions],
    ) -> None:
        self._wrap(
            aio_push.PushConsumer(
                group,
                settings,
                serializer=serializer,
                rebalance_listener=rebalance_listener,
                interceptors=interceptors,
                **options,
            )
        )

    def _wrap(self, client: aio_push.PushConsumer[V]) -> None:
        super().__init__(client)
        self.settings = client.settings
        self._ended = threading.Event()

    @overload
    def subscribe(
        self, topic: str, expression: Expression = ..., *, listener: ListenerFunction[V]
    ) -> ListenerFunction[V]: ...

    @overload
    def subscribe(self, topic: str, expression: Expression = ...) -> ListenerDecorator[V]: ...

    def subscribe(self, topic: str, expression: Expression = ALL, *, listener: Any = None) -> Any:
        """Read a topic; the listener is given as an argument, or decorated with the result."""

        def register(function: F) -> F:
            async def subscribe() -> F:
                self.aio.subscribe(topic, expression, listener=function)
                return function

            return self._run(subscribe())

        if listener is not None:
            return register(listener)
        self.aio.subscribe(topic, expression)  # refuses a wrong expression now
        return register

    def stop(self) -> None:
        """Wait for running listeners, then leave the group; a second call does nothing."""
        super().stop()
        self._ended.set()

    def run(self) -> None:
        """Start, consume until the process gets SIGINT or SIGTERM, then stop in good order.

        Further signals do not hurry the stop; they say how long it takes. On another thread than the main
        one, which gets no signals, consume until somebody calls `stop`.
        """
        with StopSignals(self._ended.set, self.aio._say_stopping).on_main_thread(), self:
            while not self._ended.wait(WAIT_S):
                pass

    unsubscribe = blocking(aio_push.PushConsumer.unsubscribe)
    suspend = on_loop(aio_push.PushConsumer.suspend)
    resume = on_loop(aio_push.PushConsumer.resume)
    assignment = on_loop(aio_push.PushConsumer.assignment)
    statistics = on_loop(aio_push.PushConsumer.statistics)


@documented(PopSettings, ("serializer", "interceptors"), PopOptions.__annotations__)
class PopConsumer(PushConsumer[V]):
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
        self,
        group: str,
        settings: PopSettings | None = None,
        *,
        serializer: Serializer[V] | None = None,
        interceptors: Sequence[ConsumeInterceptor] = (),
        **options: Unpack[PopOptions],
    ) -> None:
        self._wrap(
            aio_pop.PopConsumer(group, settings, serializer=serializer, interceptors=interceptors, **options)
        )


class MessageLoop(Generic[V]):
    """`for message in consumer`."""

    def __init__(
        self, client: BlockingClient[aio_pull.PullConsumer[V]], loop: aio_loop.MessageLoop[V]
    ) -> None:
        self._client = client
        self._aio = loop

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StoredMessage[V]:
        while (message := self._aio.next_held()) is None:
            if not self._client._run(self._aio.await_messages()):
                raise StopIteration
        return message


@documented(PullSettings, ("serializer", "rebalance_listener"))
class PullConsumer(BlockingGroupClient[aio_pull.PullConsumer[V]], Generic[V]):
    """Reads messages when it is asked to.

    ```python
    with PullConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders")
        for message in consumer:     # until the consumer is stopped
            ...                      # asking for the next message says that this one is done
    ```
    """

    def __init__(
        self,
        group: str,
        settings: PullSettings | None = None,
        *,
        serializer: Serializer[V] | None = None,
        rebalance_listener: RebalanceListener | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        super().__init__(
            aio_pull.PullConsumer(
                group, settings, serializer=serializer, rebalance_listener=rebalance_listener, **options
            )
        )
        self.settings = self.aio.settings

    def __exit__(self, *raised: object) -> None:
        self._run(self.aio.__aexit__(*raised))

    def __iter__(self) -> MessageLoop[V]:
        """`for message in consumer` gets every message until the consumer stops, one loop at a time."""
        self._fork_guard.check()
        return MessageLoop(self, aiter(self.aio))

    subscribe = blocking(aio_pull.PullConsumer.subscribe)
    unsubscribe = blocking(aio_pull.PullConsumer.unsubscribe)
    assign = blocking(aio_pull.PullConsumer.assign)
    assignment = on_loop(aio_pull.PullConsumer.assignment)
    queues = blocking(aio_pull.PullConsumer.queues)

    def poll(self, timeout_s: float | None = None, *, max_count: int | None = None) -> list[StoredMessage[V]]:
        """The next messages of one queue; empty if there are none in time."""
        return self._run(self.aio.poll(timeout_s, max_count=max_count))

    pull = blocking(aio_pull.PullConsumer.pull)
    send_back = blocking(aio_pull.PullConsumer.send_back)
    pause = on_loop(aio_pull.PullConsumer.pause)
    resume = on_loop(aio_pull.PullConsumer.resume)
    seek = blocking(aio_pull.PullConsumer.seek)
    seek_to_beginning = blocking(aio_pull.PullConsumer.seek_to_beginning)
    seek_to_end = blocking(aio_pull.PullConsumer.seek_to_end)
    seek_to_time = blocking(aio_pull.PullConsumer.seek_to_time)
    commit = blocking(aio_pull.PullConsumer.commit)
    committed = blocking(aio_pull.PullConsumer.committed)
    min_offset = blocking(aio_pull.PullConsumer.min_offset)
    max_offset = blocking(aio_pull.PullConsumer.max_offset)
    search_offset = blocking(aio_pull.PullConsumer.search_offset)
    statistics = on_loop(aio_pull.PullConsumer.statistics)
