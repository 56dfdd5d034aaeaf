"""Send-back: returns messages that a consumer failed to process to the broker, to be delivered again.

Rules kept here:
- The broker that stores a message takes it back (CONSUMER_SEND_MSG_BACK) and decides when it is delivered
  again, and when it becomes a dead letter.
- If that broker does not take it, the consumer sends a copy to the retry topic of its group. If that fails
  too, the message stays here.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cometmq.client.consumer.broker_calls import BrokerCalls
from cometmq.client.consumer.listener import DEAD_LETTER
from cometmq.client.instance.routes import vip_address
from cometmq.client.names import wrap_topic
from cometmq.model import message_properties as names
from cometmq.model.errors import ClientError, CometError, RouteNotFoundError
from cometmq.model.message import StoredMessage
from cometmq.model.names import DEFAULT_TOPIC, INNER_PRODUCER_GROUP, retry_topic
from cometmq.model.queue import MessageQueue
from cometmq.model.times import level_fault
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import ConsumerSendMsgBackRequest, SendMessageRequestV2
from cometmq.wire.record.properties import format_properties

if TYPE_CHECKING:
    from cometmq.client.consumer.settings import ConsumerSettings
    from cometmq.client.instance.instance import ClientInstance

log = logging.getLogger("cometmq.client")

SEND_BACK_TIMEOUT_S: Final = 5.0
_FIRST_RETRY_LEVEL: Final = 3
_TEMPLATE_QUEUES: Final = 4


@dataclass(eq=False, repr=False)
class SendBack:
    """Sends back messages of one group."""

    _instance: ClientInstance
    _calls: BrokerCalls
    _group: str
    _settings: ConsumerSettings
    _namespace: str

    async def give_back(self, message: StoredMessage, queue: MessageQueue, delay_level: int) -> bool:
        """Have a message delivered again; False if neither way worked."""
        try:
            await self.send_back(message, queue, delay_level)
            return True
        except CometError as error:
            log.warning("%s did not take message %s back: %s", queue.broker_name, message.msg_id, error)
        return await self.send_copy(message)

    async def send_back(self, message: StoredMessage, queue: MessageQueue, delay_level: int) -> None:
        """Ask the broker of the queue to deliver the message again; raises if it refuses."""
        if delay_level > DEAD_LETTER and (fault := level_fault("delay_level", delay_level)) is not None:
            raise ClientError(fault)
        address, _ = await self._calls.address_of(queue)
        if self._settings.vip_channel_enabled:
            address = vip_address(address)
        header = ConsumerSendMsgBackRequest(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=wrap_topic(self._namespace, message.topic),
            unit_mode=self._settings.unit_mode,
            max_reconsume_times=self._settings.send_back_limit,
            target_broker_name=queue.broker_name,
        )
        await self._instance.remoting.call_ok(
            address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=SEND_BACK_TIMEOUT_S
        )

    async def send_copy(self, message: StoredMessage) -> bool:
        """Send a copy to the retry topic; the broker makes it a dead letter after too many attempts."""
        topic = retry_topic(self._group)
        properties = dict(message.properties)
        properties.setdefault(names.RETRY_TOPIC, wrap_topic(self._namespace, message.topic))
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.msg_id)
        properties[names.DELAY] = str(_FIRST_RETRY_LEVEL + message.reconsume_times)
        # The header has the first two; a consumed half message was committed before.
        for name in (names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES, names.TRAN_MSG):
            properties.pop(name, None)
        try:
            routes = self._instance.routes
            await routes.of(topic)
            queues = routes.publish_queues(topic)
            if not queues:
                raise RouteNotFoundError(f"no queue of {topic} can be sent to")
            queue = random.choice(queues)
            header = SendMessageRequestV2(
                producer_group=INNER_PRODUCER_GROUP,
                topic=topic,
                default_topic=DEFAULT_TOPIC,
                default_topic_queue_nums=_TEMPLATE_QUEUES,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=message.born_timestamp_ms,
                flag=message.flag,
                properties=format_properties(properties),
                reconsume_times=message.reconsume_times + 1,
                unit_mode=self._settings.unit_mode,
                max_reconsume_times=self._settings.send_back_limit,
                batch=False,
                broker_name=queue.broker_name,
            )
            await self._instance.remoting.call_ok(
                routes.need_master(queue.broker_name),
                RequestCode.SEND_MESSAGE_V2,
                header,
                body=message.body,
                timeout_s=SEND_BACK_TIMEOUT_S,
            )
            return True
        except CometError as error:
            log.warning("message %s was not sent to %s either: %s", message.msg_id, topic, error)
            return False
