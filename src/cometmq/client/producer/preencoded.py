"""A producer for encoded requests, and for exactly-once sends (used by the Spark sink).

Rules kept here:
- Requests are encoded by the caller; messages are not checked here.
- An exactly-once send goes to the broker that the caller names, and has one attempt: the caller checks the
  writer sequence before the next.
- A broker without exactly-once sends raises before anything is sent to it.
- All brokers that may have messages of a writer sequence are asked, including one that is down and therefore
  in no route. Name servers keep the broker names of each topic, written before the first message is sent, so
  that every writer knows them.
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
from cometmq.wire.record.preencoded import describe_records

BROKERS_NAMESPACE: Final = "EXACTLY_ONCE_BROKERS"
"""The namespace in the name servers that has, by topic, the broker names that exactly-once writers used."""


class PreencodedProducer(Producer):
    """Sends encoded requests."""

    async def write_queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic that can be written to."""
        self._running_instance()
        found = await self._topics.find(topic, self._loop.time() + self._timeout_s)
        return found.queues

    async def send_encoded(
        self, topic: str, request: SendRequest, queue: MessageQueue | None = None
    ) -> SendReceipt:
        """Send to a queue, or round-robin; only then is another broker tried after a failure."""
        self._running_instance()
        deadline = self._loop.time() + self._timeout_s
        found = await self._topics.find(topic, deadline)
        return await self._sender.send(found, request, deadline, queue)

    async def takes_records(self, topic: str) -> bool:
        """Whether all brokers of a topic take encoded log records; see `wire/record/preencoded.py`."""
        queues = {queue.broker_name: queue for queue in await self.write_queues(topic)}
        answers = await asyncio.gather(*(self._asked_for_records(queue) for queue in queues.values()))
        return all(answers)

    async def _asked_for_records(self, queue: MessageQueue) -> bool:
        """Send zero records: the broker refuses that, or does not know the request."""
        request = SendRequest(b"", describe_records(0, keyed=False), "", 0, code=OwnRequestCode.SEND_RECORDS)
        address = self._address(queue.broker_name)
        fields = self._sender.fields(queue.topic, queue, queue.broker_name, request)
        answer = await self._running_instance().remoting.call(
            address, request.code, fields, timeout_s=self._timeout_s
        )
        return answer.code == ResponseCode.MESSAGE_ILLEGAL

    async def standings(self, topic: str, query: str, partition: int) -> dict[str, StandingResponse]:
        """The last position of a writer sequence at each broker of its topic; all of them have to respond."""
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
        answer = await self._running_instance().name_servers.call(
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
        instance = self._running_instance()
        header = PutKVConfigRequest(namespace=BROKERS_NAMESPACE, key=topic, value=",".join(brokers))
        for address in instance.name_servers.addresses:
            await instance.remoting.call_ok(
                address, RequestCode.PUT_KV_CONFIG, header, timeout_s=self._timeout_s
            )

    async def standing(self, broker_name: str, header: StandingRequest) -> StandingResponse:
        """The last position of a writer sequence at one broker."""
        address = self._address(broker_name)
        answer = await self._running_instance().remoting.call(
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
        """Send messages of a writer sequence to a broker; returns its last position there."""
        address = self._address(broker_name)
        answer = await self._running_instance().remoting.call(
            address, OwnRequestCode.SEND_ONCE, header, body=body, timeout_s=self._timeout_s
        )
        if answer.code != ResponseCode.SUCCESS:
            raise _refused(address, answer.remark, answer.code)
        return answer.header(SendOnceResponse)

    def _address(self, broker_name: str) -> str:
        instance = self._running_instance()
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
