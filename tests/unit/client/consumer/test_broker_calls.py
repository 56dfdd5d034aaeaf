"""Tables of offsets by queue, as brokers send them."""

from __future__ import annotations

import pytest

from cometmq.model.errors import HeaderError
from cometmq.model.queue import MessageQueue
from cometmq.wire.bodies.queue_table import decode_queue_table

KEY = '{"brokerName":"b","queueId":1,"topic":"orders"}'


@pytest.mark.parametrize("key", [KEY, '"' + KEY.replace('"', '\\"') + '"'])
def test_a_queue_is_a_key_that_is_an_object_or_the_text_of_one(key: str) -> None:
    body = f'{{"offsetTable":{{{key}:7}}}}'.encode()
    assert decode_queue_table(body, "offsetTable") == {MessageQueue("orders", "b", 1): 7}


@pytest.mark.parametrize(
    "key",
    [
        '"-1"',
        '"null"',
        '"[1,2]"',
        '"{}"',
        '"x"',
        "7",
        '{"brokerName":"b","queueId":"x","topic":"orders"}',
        '{"brokerName":"b","queueId":1,"topic":5}',
        '{"brokerName":null,"queueId":1,"topic":"orders"}',
    ],
)
def test_a_key_that_is_no_queue_is_refused(key: str) -> None:
    """A broker is told so, and nothing else happens."""
    with pytest.raises(HeaderError):
        decode_queue_table(f'{{"offsetTable":{{{key}:7}}}}'.encode(), "offsetTable")
