"""The blocking pop consumer."""

from __future__ import annotations

import threading
from typing import Unpack

from cometmq.client.blocking.consumer import PushConsumer
from cometmq.client.blocking.face import Face
from cometmq.client.consumer.pop import consumer as aio
from cometmq.client.consumer.pop.settings import PopOptions, PopSettings


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
