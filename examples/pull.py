"""Read a topic at one's own pace: `python examples/pull.py [NAMESRV]`.

A pull consumer asks for messages when it wants some, goes back to where it likes, and says itself how far its
group is.
"""

import sys

from cometmq import Message, Producer, PullConsumer

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

with Producer("audit-source", namesrv=namesrv) as producer:
    for number in range(20):
        producer.send(Message("audit", b"entry %d" % number))

with PullConsumer("auditors", namesrv=namesrv, auto_commit=False) as consumer:
    queues = consumer.queues("audit")
    consumer.assign(queues)
    for queue in queues:
        consumer.seek_to_beginning(queue)
    entries: list[str] = []
    while len(entries) < 20:
        entries += [message.body.decode() for message in consumer.poll(timeout_s=5)]
    consumer.commit()
    print(f"{len(entries)} entries from {len(queues)} queues")
    for queue in queues:
        print(f"{queue}: read up to {consumer.committed(queue)}")
