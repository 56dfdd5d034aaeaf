"""A broker inside a test: `pytest examples/test_with_a_broker.py`.

The fixture `rocketmq` comes with CometMQ: a real name server and broker in the process of the test, ready in
milliseconds, gone without a trace.
"""

from cometmq import Message, Producer, PullConsumer
from cometmq.testing import EmbeddedBroker


def test_an_order_reaches_the_warehouse(rocketmq: EmbeddedBroker) -> None:
    with Producer("shop", namesrv=rocketmq.namesrv) as producer:
        receipt = producer.send(Message("orders", b"one bicycle"))
    with PullConsumer("warehouse", namesrv=rocketmq.namesrv) as consumer:
        consumer.assign([receipt.queue])
        consumer.seek_to_beginning(receipt.queue)
        (message,) = consumer.poll(timeout_s=5)
    assert message.body == b"one bicycle"
    assert message.msg_id == receipt.msg_id
