"""Sources and sinks over TLS and with credentials: every request is encrypted and signed (D1, D2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq import Producer
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from tests.spark.live_kit import Live, numbers

KEYS = {"accessKey": "spark", "secretKey": "0123456789"}
SECURE = {"tls.enable": "true", **KEYS}


class Guard:
    """Lets through what is encrypted and signed, and remembers the rest."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.wrong: list[str] = []

    def before_request(self, request: Command, connection: Connection) -> None:
        fields = request.fields()
        self.seen.add(request.code)
        if (
            connection.channel.tls is None
            or fields.get("AccessKey") != "spark"
            or not fields.get("Signature")
        ):
            self.wrong.append(f"request {request.code} of {connection.remote_address}: {fields}")

    def after_request(self, request: Command, answer: Answer, connection: Connection) -> None:
        pass


@pytest.fixture
def guarded(live: Live) -> Iterator[tuple[Live, Guard]]:
    """A broker of its own, which is watched once it has its messages."""
    with EmbeddedBroker() as rocketmq, Producer("guarded", namesrv=rocketmq.namesrv) as producer:
        secure = Live(live.spark, rocketmq, producer)
        for topic in ("orders", "copies"):
            rocketmq.call(rocketmq.create_topic(topic, queues=2))
        secure.send_numbers("orders", range(50))
        producer.stop()
        guard = Guard()
        rocketmq.broker.server.hooks = (guard,)
        yield secure, guard


def test_every_request_of_source_and_sink_is_encrypted_and_signed(
    guarded: tuple[Live, Guard], tmp_path: Path
) -> None:
    secure, guard = guarded
    table = secure.table("orders", **SECURE)
    assert numbers(table) == list(range(50))

    secure.run_to_end(secure.stream("orders", group="secured", maxOffsetsPerTrigger=30, **SECURE), tmp_path)
    assert secure.written(tmp_path) == list(range(50))

    options = {"namesrvAddr": secure.rocketmq.namesrv, "topic": "copies", **SECURE}
    table.select("body").write.format("rocketmq").mode("append").options(**options).save()
    assert numbers(secure.table("copies", **SECURE)) == list(range(50))

    assert guard.wrong == []
    assert guard.seen >= {
        RequestCode.PULL_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }
