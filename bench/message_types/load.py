"""Dialogues of transaction producers and pop consumers, as in Apache's client.

Rules kept here:

- A transaction is a half message of 128 bytes and its commit. The commit is awaited, although clients send it
  one-way: it counts when the broker has done it.
- A pop asks for 32 messages of any queue. Each is acknowledged, one by one as clients do, or all at once as
  the proxy does, and counts when that is answered.
- When a group has popped the whole topic, a new group starts from the beginning.
"""

from __future__ import annotations

import itertools
import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial

from bench.broker.load import BATCH, BODY, QUEUES, SEND_MESSAGE_V2, send_fields
from bench.errors import LoadError
from bench.load.dialogue import Dialogue, Request
from bench.load.frames import Answer, json_request

END_TRANSACTION = 37
POP_MESSAGE = 200050
ACK_MESSAGE = 200051
BATCH_ACK_MESSAGE = 200151
NOTHING_FOUND = (19, 208, 209, 210)

COMMIT = 8
PREPARED = 4
OFFSET_IN_ID = 16
BROKER = "broker-a"
INVISIBLE_MS = 60_000
POLL_MS = 0
TRIES_BEFORE_NEXT_GROUP = 64


def _request(code: int, fields: Mapping[str, str] | None, body: bytes = b"") -> Request:
    return partial(json_request, code, fields, body)


def _expect_success(answer: Answer) -> Answer:
    if answer.code:
        raise LoadError(f"the broker answered code {answer.code}: {answer.remark}")
    return answer


def transactions(topic: str) -> Callable[[], Dialogue]:
    """Half messages to the queues in turn, each committed."""
    numbers = itertools.count()
    born_ms = int(time.time() * 1000)

    def transaction() -> Dialogue:
        number = next(numbers)
        fields = send_fields(topic, number, number % QUEUES, born_ms)
        fields["f"] = str(PREPARED)
        fields["i"] += "TRAN_MSG\x01true\x02PGROUP\x01order-service\x02"
        (half,) = yield [_request(SEND_MESSAGE_V2, fields, BODY)]
        told = _expect_success(half).fields
        end = {
            "producerGroup": "order-service",
            "tranStateTableOffset": told["queueOffset"],
            "commitLogOffset": str(int(told["msgId"][OFFSET_IN_ID:], 16)),
            "commitOrRollback": str(COMMIT),
            "fromTransactionCheck": "false",
            "msgId": told["transactionId"],
            "transactionId": told["transactionId"],
            "topic": topic,
        }
        (ended,) = yield [_request(END_TRANSACTION, end)]
        _expect_success(ended)
        return 1

    return transaction


class _Popping:
    """Pops of one topic, by one group after the other."""

    def __init__(self, topic: str, *, at_once: bool) -> None:
        self._topic = topic
        self._at_once = at_once
        self._groups = (f"bench-{time.time_ns()}-{number}" for number in itertools.count())
        self._group = next(self._groups)
        self._in_vain = 0

    def dialogue(self) -> Dialogue:
        """Pop until there are messages, and acknowledge them."""
        while True:
            group = self._group
            (popped,) = yield [_request(POP_MESSAGE, self._pop_fields(group))]
            if popped.code not in NOTHING_FOUND:
                break
            # Another pop may hold the queues at this moment: that alone does not mean that nothing is left.
            self._in_vain += group == self._group
            if self._in_vain >= TRIES_BEFORE_NEXT_GROUP:
                self._group, self._in_vain = next(self._groups), 0
        self._in_vain = 0
        handles = _handles(_expect_success(popped).fields)
        acks = [self._batch_ack(popped, group)] if self._at_once else self._acks(handles, group)
        for answer in (yield acks):
            _expect_success(answer)
        return len(handles)

    def _pop_fields(self, group: str) -> dict[str, str]:
        return {
            "consumerGroup": group,
            "topic": self._topic,
            "queueId": "-1",
            "maxMsgNums": str(BATCH),
            "invisibleTime": str(INVISIBLE_MS),
            "pollTime": str(POLL_MS),
            "bornTime": str(int(time.time() * 1000)),
            "initMode": "0",
            "exp": "*",
            "expType": "TAG",
            "order": "false",
        }

    def _acks(self, handles: list[tuple[str, str, str]], group: str) -> list[Request]:
        return [
            _request(
                ACK_MESSAGE,
                {
                    "consumerGroup": group,
                    "topic": self._topic,
                    "queueId": queue_id,
                    "extraInfo": handle,
                    "offset": offset,
                },
            )
            for queue_id, offset, handle in handles
        ]

    def _batch_ack(self, popped: Answer, group: str) -> Request:
        told = popped.fields
        starts, offsets = _by_queue(told["startOffsetInfo"]), _by_queue(told["msgOffsetInfo"])
        acks = [
            {
                "c": group,
                "t": self._topic,
                "r": "0",
                "so": int(starts[queue_id]),
                "q": int(queue_id),
                "rq": int(told["reviveQid"]),
                "pt": int(told["popTime"]),
                "it": int(told["invisibleTime"]),
                "b": _bits(int(starts[queue_id]), listed),
            }
            for queue_id, listed in offsets.items()
        ]
        return _request(BATCH_ACK_MESSAGE, None, json.dumps({"brokerName": BROKER, "acks": acks}).encode())


def _by_queue(text: str) -> dict[str, str]:
    """What an answer says about each queue of the topic."""
    return {queue_id: value for _, queue_id, value in (part.split(" ") for part in text.split(";"))}


def _handles(told: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Queue, offset and handle of each message."""
    starts = _by_queue(told["startOffsetInfo"])
    shared = f"{told['popTime']} {told['invisibleTime']} {told['reviveQid']} 0 {BROKER}"
    return [
        (queue_id, offset, f"{starts[queue_id]} {shared} {queue_id} {offset}")
        for queue_id, listed in _by_queue(told["msgOffsetInfo"]).items()
        for offset in listed.split(",")
    ]


def _bits(start: int, listed: str) -> str:
    """Offsets as a set of bits from the first one on."""
    bits = sum(1 << int(offset) - start for offset in listed.split(","))
    return b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode()


def _popping(topic: str, *, at_once: bool) -> Callable[[], Dialogue]:
    return _Popping(topic, at_once=at_once).dialogue


DIALOGUES: dict[str, Callable[[str], Callable[[], Dialogue]]] = {
    "transactions": transactions,
    "pops": partial(_popping, at_once=False),
    "pops-acked-at-once": partial(_popping, at_once=True),
}
