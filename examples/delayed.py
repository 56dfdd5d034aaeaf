"""A reminder in a second: `python examples/delayed.py [NAMESRV]`.

The broker keeps a delayed message and hands it out when it is due; there are 18 levels, from a second to two
hours.
"""

import sys
import threading
import time

from cometmq import Message, Producer, PushConsumer, StoredMessage

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
reminded = threading.Event()


def remind(message: StoredMessage) -> None:
    late_ms = time.time() * 1000 - message.born_timestamp_ms
    print(f"{message.body.decode()}: after {late_ms / 1000:.1f} s")
    reminded.set()


consumer = PushConsumer("reminders", namesrv=namesrv)
consumer.subscribe("reminders", listener=remind)
with Producer("calendar", namesrv=namesrv) as producer:
    producer.send(Message("reminders", b"drink some water", delay_level=1))
    with consumer:
        if not reminded.wait(60):
            raise SystemExit("no reminder within a minute")
