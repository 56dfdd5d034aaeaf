"""The producer of programs that encode many messages at once: whole requests, and requests stored once.

Rules kept here:
- What is sent is encoded already; nothing is checked message by message.
- A request that is stored once goes to the broker that the caller names, and has one try: the caller knows
  what to ask before another.
- A broker that knows no exactly-once sends is an error before anything is sent to it.
- All brokers that may have messages of a lane are asked, also one that is away now and therefore in no route.
  So that every writer knows which these are, the name servers keep their names for each topic, and keep them
  before the first message is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from cometmq.client.producer.producer import Producer
from cometmq.client.producer.send_request import SendRequest
from cometmq.client.producer.sender import SendReceipt
from cometmq.model.errors import ClientError, ConnectError, ResponseError
from cometmq.model.queue import MessageQueue
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.exactly_once import (
    OwnRequestCode,
    SendOnceRequest,
    SendOnceResponse,
    StandingRequest,
    StandingResponse,
)
from cometmq.wire.frame.command import Body
from cometmq.wire.headers.namesrv import GetKVConfigRequest, GetKVConfigResponse, PutKVConfigRequest
from cometmq.wire.record.log_records import describe_records

BROKERS_NAMESPACE: Final = "EXACTLY_ONCE_BROKERS"
"""Where name servers keep, for each topic, the names of the brokers that exactly-once writers used."""


class PreencodedProducer(Producer):
    """Sends requests that are made elsewhere."""

    async def write_queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues that messages of a topic can be sent to."""
        self._running()
        found = await self._topics.find(topic, self._loop.time() + self._timeout_s)
        return found.queues

    async def send_encoded(
        self, topic: str, request: SendRequest, queue: MessageQueue | None = None
    ) -> SendReceipt:
        """Send to a queue, or to whose turn it is; only then is another broker tried if one fails."""
        self._running()
        deadline = self._loop.time() + self._timeout_s
        found = await self._topics.find(topic, deadline)
        return await self._sender.send(found, request, deadline, queue)

    async def takes_records(self, topic: str) -> bool:
        """Whether all brokers of a topic take records as they are in the log; see
        `wire/record/log_records.py`."""
        queues = {queue.broker_name: queue for queue in await self.write_queues(topic)}
        answers = await asyncio.gather(*(self._asked_for_records(queue) for queue in queues.values()))
        return all(answers)

    async def _asked_for_records(self, queue: MessageQueue) -> bool:
        """Send none, which is refused for that reason or because the request is not known."""
        request = SendRequest(b"", describe_records(0, keyed=False), "", 0, code=OwnRequestCode.SEND_RECORDS)
        address = self._address(queue.broker_name)
        fields = self._sender.fields(queue.topic, queue, queue.broker_name, request)
        answer = await self._running().remoting.call(address, request.code, fields, timeout_s=self._timeout_s)
        return answer.code == ResponseCode.MESSAGE_ILLEGAL

    async def standings(self, topic: str, query: str, partition: int) -> dict[str, StandingResponse]:
        """How far a lane is at each broker of its topic, by broker name; all of them have to answer."""
        current = {queue.broker_name for queue in await self.write_queues(topic)}
        noted = await self._noted_brokers(topic)
        brokers = sorted(current | noted)
        header = StandingRequest(topic=topic, query=query, partition=partition)
        found = await asyncio.gather(*(self.standing(broker, header) for broker in brokers))
        if not current <= noted:
            await self._note_brokers(topic, brokers)
        return dict(zip(brokers, found, strict=True))

    async def _noted_brokers(self, topic: str) -> set[str]:
        """The brokers that exactly-once writers of a topic have ever used."""
        answer = await self._running().name_servers.call(
            RequestCode.GET_KV_CONFIG,
            GetKVConfigRequest(namespace=BROKERS_NAMESPACE, key=topic),
            timeout_s=self._timeout_s,
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return set()
        if answer.code != ResponseCode.SUCCESS:
            raise _refused("the name server", answer.remark, answer.code)
        return set(filter(None, (answer.header(GetKVConfigResponse).value or "").split(",")))

    async def _note_brokers(self, topic: str, brokers: Sequence[str]) -> None:
        instance = self._running()
        header = PutKVConfigRequest(namespace=BROKERS_NAMESPACE, key=topic, value=",".join(brokers))
        for address in instance.name_servers.addresses:
            await instance.remoting.call_ok(
                address, RequestCode.PUT_KV_CONFIG, header, timeout_s=self._timeout_s
            )

    async def standing(self, broker_name: str, header: StandingRequest) -> StandingResponse:
        """How far a lane is at one broker."""
        address = self._address(broker_name)
        answer = await self._running().remoting.call(
            address, OwnRequestCode.GET_STANDING, header, timeout_s=self._timeout_s
        )
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise ClientError(
                f"broker {broker_name} at {address} cannot store messages exactly once: like those of Apache "
                "RocketMQ, it does not know which ones it has already; leave exactlyOnce out, or write to "
                "brokers of CometMQ",
                code=answer.code,
            )
        if answer.code != ResponseCode.SUCCESS:
            raise _refused(address, answer.remark, answer.code)
        return answer.header(StandingResponse)

    async def send_once(self, broker_name: str, header: SendOnceRequest, body: Body) -> SendOnceResponse:
        """Send messages of a lane to a broker; the answer says how far the lane is there."""
        address = self._address(broker_name)
        answer = await self._running().remoting.call(
            address, OwnRequestCode.SEND_ONCE, header, body=body, timeout_s=self._timeout_s
        )
        if answer.code != ResponseCode.SUCCESS:
            raise _refused(address, answer.remark, answer.code)
        return answer.header(SendOnceResponse)

    def _address(self, broker_name: str) -> str:
        instance = self._running()
        address = instance.routes.master_of(broker_name)
        if address is None:
            instance.refresh_soon()
            raise ConnectError(
                f"broker {broker_name} is away, and may have messages of this write; if it is gone for good, "
                f"take its name out of the name servers' {BROKERS_NAMESPACE} entry for the topic"
            )
        return address


def _refused(address: str, remark: str | None, code: int) -> ResponseError:
    return ResponseError(f"{address} refused the messages: {remark or 'no reason given'}", code=code)
