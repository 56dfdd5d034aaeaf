"""Steps of several orders, each order's in order: `python examples/in_order.py [NAMESRV]`.

Messages with the same sharding key go to the same queue; an ordered consumer takes a queue's messages one
after the other. Orders run beside each other, the steps of one order never do.
"""

import sys
import threading

from cometmq import Message, Producer, PushConsumer, StoredMessage

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
STEPS = ("created", "paid", "packed", "shipped")
ORDERS = 5

seen: dict[str, list[str]] = {}
all_seen = threading.Event()
lock = threading.Lock()


def take(message: StoredMessage) -> None:
    with lock:
        seen.setdefault(message.sharding_key or "", []).append(message.body.decode())
        if sum(map(len, seen.values())) == ORDERS * len(STEPS):
            all_seen.set()


with Producer("order-steps", namesrv=namesrv) as producer:
    for step in STEPS:
        for order in range(ORDERS):
            producer.send(Message("order-steps", step.encode(), sharding_key=f"order-{order}"))

consumer = PushConsumer("fulfilment", namesrv=namesrv, ordered=True)
consumer.subscribe("order-steps", listener=take)
with consumer:
    if not all_seen.wait(60):
        raise SystemExit("not all steps came within a minute")
for key in sorted(seen):
    print(f"{key}: {', '.join(seen[key])}")
