"""Many messages quickly, in asyncio: `python examples/async_batches.py [NAMESRV]`.

`send_batch` packs messages of one topic into as few requests as fit; many sends can be under way at a time.
"""

import asyncio
import sys

from cometmq import Message
from cometmq.aio import Producer

namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("sensors", namesrv=namesrv) as producer:
        readings = [Message("readings", b"%d" % number, tags="celsius") for number in range(1_000)]
        receipts = await producer.send_batch(readings)
        print(f"{len(receipts)} in batches, the last at offset {receipts[-1].queue_offset}")
        single = [producer.send(Message("readings", b"%d" % number)) for number in range(100)]
        statuses = {receipt.status.value for receipt in await asyncio.gather(*single)}
        print(f"{len(single)} at the same time: {', '.join(statuses)}")


asyncio.run(main())
