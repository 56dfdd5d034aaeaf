"""Send ten orders: `python examples/produce.py [NAMESRV]`."""

import sys

from cometmq import Message, Producer

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

with Producer("order-service", namesrv=namesrv) as producer:
    for number in range(10):
        message = Message("orders", b"order %d" % number, tags="paid", keys=[f"order-{number}"])
        receipt = producer.send(message)
        print(f"{receipt.msg_id} is in {receipt.queue} at offset {receipt.queue_offset}")
