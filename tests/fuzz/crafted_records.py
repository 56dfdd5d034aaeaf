"""Records as nobody should write them into the topics that a broker works through by itself.

A broker reads these topics in the background: delayed messages, timers, halves and ends of transactions,
checkpoints
and acknowledgements of pops, retries and dead letters. Each record here looks like one that a broker wrote,
but for a
value or two. They are put into the store as a broker of another make, or an older one, might have left them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cometmq.model.message import Host
from cometmq.model.settings import Layer, resolve
from cometmq.ports.clock import SystemClock
from cometmq.ports.disk import SystemDisk
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus
from cometmq.wire.record.codec import Record
from cometmq.wire.record.ids import pack_host
from tests.fuzz.odd_values import bent, json_text, odd_body
from tests.fuzz.plausible import BROKER_NAME, CLUSTER, GROUPS, TOPICS
from tests.fuzz.properties import odd_block
from tests.fuzz.server_process import SETTINGS

HOST: Final = pack_host(Host("127.0.0.1", 10911))
REVIVE_TOPIC: Final = f"rmq_sys_REVIVE_LOG_{CLUSTER}"


class CraftedRecords:
    """Makes them; the same seed and number give the same record."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.now_ms = time.time_ns() // 1_000_000
        self._kinds: list[Callable[[random.Random], Record]] = [
            self._delayed, self._timer, self._half, self._op, self._checkpoint, self._ack, self._retry,
            self._dead,
        ]  # fmt: skip

    def record(self, number: int) -> Record:
        choice = random.Random(f"{self._seed}:{number}:record")
        record = choice.choice(self._kinds)(choice)
        record.born_host = record.store_host = HOST
        record.born_timestamp_ms = choice.choice((self.now_ms, self.now_ms, 0, -1, 2**63 - 1))
        return record

    def _unique(self, choice: random.Random) -> str:
        return f"{choice.randrange(2**128):032X}"

    def _delayed(self, choice: random.Random) -> Record:
        level = choice.randrange(1, 6)
        block = odd_block(
            choice,
            DELAY=str(level),
            REAL_TOPIC=choice.choice(TOPICS),
            REAL_QID="0",
            UNIQ_KEY=self._unique(choice),
        )
        queue_id = level - 1 if choice.random() < 0.8 else choice.choice((0, 17, 18, 30))
        return Record("SCHEDULE_TOPIC_XXXX", b"delayed", block, queue_id=queue_id)

    def _timer(self, choice: random.Random) -> Record:
        due = str(self.now_ms + choice.choice((-1000, 200, 1000, 3000)))
        block = odd_block(
            choice, TIMER_OUT_MS=due, TIMER_DELIVER_MS=due, REAL_TOPIC=choice.choice((*TOPICS, REVIVE_TOPIC)),
            REAL_QID="0", UNIQ_KEY=self._unique(choice),
        )  # fmt: skip
        return Record("rmq_sys_wheel_timer", b"timed", block)

    def _half(self, choice: random.Random) -> Record:
        block = odd_block(
            choice, TRAN_MSG="true", PGROUP=GROUPS[1], REAL_TOPIC=choice.choice(TOPICS), REAL_QID="0",
            UNIQ_KEY=self._unique(choice), TRANSACTION_CHECK_TIMES=str(choice.randrange(16)),
        )  # fmt: skip
        sys_flag = choice.choice((0, 0, 4, 8, 12, 1))
        return Record("RMQ_SYS_TRANS_HALF_TOPIC", b"half", block, sys_flag=sys_flag)

    def _op(self, choice: random.Random) -> Record:
        """Which halves are ended: their offsets in the queue of halves, one after the other."""
        body = choice.choice(
            (
                b"0,",
                b"1,2,3,",
                b"",
                b",,,",
                b"-1,",
                b"9" * 5000 + b",",
                b"1e5,",
                b"x,",
                b"0," * 3000,
                "٣,".encode(),
            )
        )
        block = odd_block(choice, TAGS="d", UNIQ_KEY=self._unique(choice))
        return Record("RMQ_SYS_TRANS_OP_HALF_TOPIC", body, block)

    def _checkpoint(self, choice: random.Random) -> Record:
        members: dict[str, Any] = {
            "bm": 0, "bn": BROKER_NAME, "c": GROUPS[0], "d": [0, 1], "it": 1000, "n": 2,
            "pt": self.now_ms - choice.choice((500, 2000, 100_000)), "q": 0, "so": choice.randrange(5),
            "t": TOPICS[0],
        }  # fmt: skip
        return self._revive(choice, "ck", members)

    def _ack(self, choice: random.Random) -> Record:
        members: dict[str, Any] = {
            "ao": choice.randrange(5), "c": GROUPS[0], "pt": self.now_ms - 2000, "q": 0, "so": 0,
            "t": TOPICS[0],
        }  # fmt: skip
        tag = choice.choice(("ack", "bAck", "x"))
        if tag == "bAck":
            members |= {"ao": -1, "aol": [0, 1]}
        return self._revive(choice, tag, members)

    def _revive(self, choice: random.Random, tag: str, members: dict[str, Any]) -> Record:
        body = json_text(bent(choice, members) if choice.random() < 0.7 else members)
        if choice.random() < 0.1:
            body = odd_body(choice)
        block = odd_block(
            choice,
            TAGS=tag,
            TIMER_DELIVER_MS=str(self.now_ms),
            UNIQ_KEY=self._unique(choice),
            CK_NEXT=choice.choice("015"),
        )
        return Record(REVIVE_TOPIC, body[:60_000], block, queue_id=choice.randrange(8))

    def _retry(self, choice: random.Random) -> Record:
        block = odd_block(
            choice, RETRY_TOPIC=TOPICS[0], ORIGIN_MESSAGE_ID="x", RECONSUME_TIME="3",
            MAX_RECONSUME_TIMES="16",
            UNIQ_KEY=self._unique(choice),
        )  # fmt: skip
        topic = choice.choice(
            (f"%RETRY%{GROUPS[0]}", f"%RETRY%{GROUPS[0]}_{TOPICS[0]}", f"%RETRY%{GROUPS[0]}+{TOPICS[0]}")
        )
        times = choice.choice((0, 1, 16, 2**31 - 1, -1, -(2**31)))
        return Record(topic, b"retry", block, reconsume_times=times)

    def _dead(self, choice: random.Random) -> Record:
        block = odd_block(
            choice, DLQ_ORIGIN_TOPIC=TOPICS[0], DLQ_ORIGIN_MESSAGE_ID="x", UNIQ_KEY=self._unique(choice)
        )
        return Record(f"%DLQ%{GROUPS[0]}", b"dead", block)


async def put_into_store(store_folder: Path, crafted: CraftedRecords, count: int) -> int:
    """Put so many records into a store that nobody uses; how many it took."""
    settings = {**SETTINGS, "storePathRootDir": str(store_folder)}
    known = {key: value for key, value in settings.items() if key in StoreConfig.__struct_encode_fields__}
    config = resolve(StoreConfig, [Layer("test", known)]).settings
    store = MessageStore(SystemDisk(), SystemClock(), config, HOST)
    await store.start()
    try:
        results = [store.put(crafted.record(number)) for number in range(count)]
    finally:
        await store.stop()
    return sum(result.status is PutStatus.PUT_OK for result in results)
