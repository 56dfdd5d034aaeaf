"""Bill orders until interrupted: `python examples/consume.py [NAMESRV]`."""

import sys

from cometmq import ConsumeFromWhere, PushConsumer, StoredMessage

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
consumer = PushConsumer(
    "billing", namesrv=namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
)


@consumer.subscribe("orders", "paid || refunded")
def bill(message: StoredMessage) -> None:
    """Returning acknowledges; raising has the message delivered again, later and later."""
    # In one piece, because listeners run on several threads.
    print(f"billed {message.body.decode()} ({message.tags})\n", end="", flush=True)


consumer.run()  # until SIGINT or SIGTERM; finishes what it holds
