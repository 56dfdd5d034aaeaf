"""Apache's Java client 5.3 with transactions, timed messages, requests, replies and pop consumers.

Rules kept here:
- What becomes of a transaction is said with its message: the state after the local work, and the answers to
  the broker's questions.
- The questions and the local work are reported like messages of a consumer, in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from tests.compat.foreign import Listening, Sent, fresh
from tests.compat.foreign_clients import JavaClient
from tests.compat.jvm import java_command

COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"


class TransactionSent(Sent, frozen=True):
    """What a producer was told about a message in a transaction."""

    local: str = ""


class TimedSent(Sent, frozen=True):
    """What a producer was told about a timed message."""

    recall_handle: str = ""


class KindsProducer:
    """A producer; `checks` has what the broker asked it, `local` the transactions that it began."""

    def __init__(self, client: KindsClient, group: str) -> None:
        self.name = fresh("producer")
        self._client = client
        self.local = client.listen(f"{self.name}-local")
        self.checks = client.listen(f"{self.name}-checks")
        client.call("kindsProducer", name=self.name, group=group)

    def transact(
        self, topic: str, *bodies: str, local: str = COMMIT, checks: Sequence[str] = (UNKNOWN,)
    ) -> list[TransactionSent]:
        """Send messages in transactions of their own."""
        return msgspec.convert(
            self._begin(topic, bodies, local, checks, held=False).result(40), list[TransactionSent]
        )

    def begin_held(
        self, topic: str, body: str, *, local: str = COMMIT, checks: Sequence[str] = (UNKNOWN,)
    ) -> Future[Any]:
        """Send a half message, and let the local work wait for `let_go`."""
        begun = self._begin(topic, [body], local, checks, held=True)
        self.local.wait_for([body])
        return begun

    def let_go(self, body: str) -> None:
        self._client.call("letGo", text=body)

    def _begin(
        self, topic: str, bodies: Sequence[str], local: str, checks: Sequence[str], *, held: bool
    ) -> Future[Any]:
        properties = {"local": local, "checks": " ".join(checks), **({"held": "yes"} if held else {})}
        messages = [{"body": body.encode(), "properties": properties} for body in bodies]
        return self._client.begin("transact", producer=self.name, topic=topic, messages=messages)

    def send_timed(self, topic: str, body: str, form: str, time: int) -> TimedSent:
        """Send a message for later: `delayMs`, `delaySec` or `deliverMs`."""
        messages = [{"body": body.encode()}]
        told = self._client.call(
            "sendTimed", producer=self.name, topic=topic, messages=messages, form=form, time=time
        )
        return msgspec.convert(told[0], TimedSent)

    def recall(self, topic: str, handle: str) -> str:
        return str(self._client.call("recall", producer=self.name, topic=topic, handle=handle))

    def begin_request(self, topic: str, body: str, millis: int) -> Future[Any]:
        """Ask; the result will be the text of the reply."""
        return self._client.begin(
            "request", producer=self.name, topic=topic, body=body.encode(), millis=millis
        )

    def stop(self) -> None:
        self._client.call("stopKindsProducer", producer=self.name)


class KindsConsumer(Listening):
    """A consumer that pops or replies."""

    def stop(self) -> None:
        self._client.call("stopKindsConsumer", name=self.name)


class KindsClient(JavaClient):
    """Apache's Java client 5.3, in the driver for the kinds that older ones do not have."""

    def command(self) -> list[str]:
        return java_command("KindsDriver", self.namesrv, home=self.home, props=self.props)

    def listen(self, name: str) -> Listening:
        """Collect what is reported under this name."""
        return self._collect(Listening(self, name))

    def kinds_producer(self, group: str | None = None) -> KindsProducer:
        return KindsProducer(self, group or fresh("PG"))

    def pop_mode(self, broker: str, topic: str, group: str, *, share: int = 0) -> None:
        """Have the consumers of a group pop a topic instead of pulling from it."""
        self.call("popMode", broker=broker, topic=topic, group=group, share=share)

    def pop(self, group: str, topic: str, *, invisible_ms: int, **behaviour: Any) -> KindsConsumer:
        """Start a push consumer that leaves its share to the broker."""
        consumer = self._collect(KindsConsumer(self, fresh("consumer")))
        started = self.call(
            "pop", name=consumer.name, group=group, topic=topic, invisibleMillis=invisible_ms, **behaviour
        )
        consumer.client_id = str(started)
        return consumer

    def reply(self, group: str, topic: str, *, sleep_ms: int = 0) -> KindsConsumer:
        """Start a consumer that replies to each request after a while."""
        consumer = self._collect(KindsConsumer(self, fresh("replier")))
        self.call("reply", name=consumer.name, group=group, topic=topic, sleepMillis=sleep_ms)
        return consumer
