"""A running broker on loopback, spoken to over real sockets with raw requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from cometmq.broker.broker import Broker
from cometmq.remoting.client import RemotingClient
from cometmq.store.read.reader import GetStatus
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header
from cometmq.wire.headers.send import ConsumerSendMsgBackRequest, SendMessageRequestV2
from cometmq.wire.record.batch import BatchItem, encode_batch
from cometmq.wire.record.codec import Record, decode_record
from cometmq.wire.record.properties import encode_properties, format_properties
from tests.answers import Told, told

PATIENCE_S = 30.0
CALL_S = 20.0
"""Longer than a client would wait: on a busy machine everybody is slow."""
DELAYS = {"messageDelayLevel": "1s 2s 3s 4s 5s"}
BORN_MS = 1_700_000_000_000
ID = "7F0000010000000000000000000000010000"


async def idle_share(rounds: int = 3, round_s: float = 0.5) -> float:
    """The share of a core that this process uses while nothing is asked of it, in the quietest round."""
    shares = []
    for _ in range(rounds):
        used, began = time.process_time(), time.monotonic()
        await asyncio.sleep(round_s)  # not waiting for anything: this is the time over which work is measured
        shares.append((time.process_time() - used) / (time.monotonic() - began))
    return min(shares)


class BrokerKit:
    """A broker, its name server and a client of both."""

    def __init__(self, embedded: EmbeddedBroker) -> None:
        self.embedded = embedded
        self.client = RemotingClient()

    @property
    def broker(self) -> Broker:
        return self.embedded.broker

    async def call(self, code: int, header: Header | None = None, body: bytes = b"") -> Told:
        return told(await self.client.call(self.embedded.address, code, header, body=body, timeout_s=CALL_S))

    async def ok(self, code: int, header: Header | None = None, body: bytes = b"") -> Told:
        answer = await self.call(code, header, body)
        assert answer.code == 0, answer
        return answer

    async def send(
        self,
        topic: str = "Orders",
        body: bytes = b"hello",
        properties: Mapping[str, str] | str | None = None,
        **fields: object,
    ) -> Told:
        header = send_header(topic, properties, **fields)
        return await self.call(RequestCode.SEND_MESSAGE_V2, header, body)

    async def send_batch(
        self,
        topic: str,
        items: list[tuple[bytes, Mapping[str, str]]],
        properties: Mapping[str, str] | str | None = None,
    ) -> Told:
        body = encode_batch(BatchItem(body, encode_properties(each)) for body, each in items)
        header = send_header(topic, properties, batch=True)
        return await self.call(RequestCode.SEND_BATCH_MESSAGE, header, body)

    async def send_back(self, offset: int, group: str = "billing", **fields: object) -> Told:
        values: dict[str, object] = {"delay_level": 0, **fields}
        header = ConsumerSendMsgBackRequest(offset=offset, group=group, **values)  # type: ignore[arg-type]
        return await self.call(RequestCode.CONSUMER_SEND_MSG_BACK, header)

    def stored(self, topic: str, queue_id: int = 0) -> list[Record]:
        """All messages of a queue, as they lie in the log."""
        records: list[Record] = []
        while True:
            found = self.broker.context.store.reader.get(topic, queue_id, len(records), 1000)
            if found.status is not GetStatus.FOUND:
                return records
            records += [decode_record(bytes(view)) for view in found.records]


def send_header(
    topic: str, properties: Mapping[str, str] | str | None, **fields: object
) -> SendMessageRequestV2:
    if properties is None:
        properties = {"UNIQ_KEY": ID, "WAIT": "true"}
    text = properties if isinstance(properties, str) else format_properties(properties)
    values: dict[str, object] = {
        "producer_group": "shop",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": BORN_MS,
        "flag": 0,
        "properties": text,
        **fields,
    }
    return SendMessageRequestV2(topic=topic, **values)  # type: ignore[arg-type]


@asynccontextmanager
async def running_broker(
    folder: Path | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[BrokerKit]:
    """A broker with these settings; in a given folder its messages stay."""
    async with EmbeddedBroker(folder, settings=settings) as embedded:
        kit = BrokerKit(embedded)
        try:
            yield kit
        finally:
            await kit.client.stop()
