"""Checkpoints and acknowledgements as Apache's broker writes them (B12)."""

from __future__ import annotations

import pytest

from cometmq.model.errors import HeaderError
from cometmq.wire.bodies.pop import (
    Ack,
    Checkpoint,
    decode_ack,
    decode_batch_acks,
    decode_checkpoint,
    encode_ack,
    encode_checkpoint,
)

# What fastjson makes of Apache's classes.
CHECKPOINT = (
    b'{"bm":0,"bn":"b","c":"g","d":[0,1],"it":6,"n":2,"pt":5,"q":1,"reviveTime":11,"ro":0,"so":7,"t":"t"}'
)
PUT_AGAIN = CHECKPOINT.replace(b'"so":7', b'"rp":"3","so":7')
ACK = b'{"ao":1,"bn":"b","c":"g","pt":9,"q":1,"so":2,"t":"t"}'
BATCH = b'{"ao":-1,"aol":[4],"c":"g","pt":9,"q":1,"so":2,"t":"t"}'


def checkpoint(**changes: object) -> Checkpoint:
    values: dict[str, object] = {
        "broker_name": "b",
        "group": "g",
        "diffs": [0, 1],
        "invisible_ms": 6,
        "count": 2,
        "pop_time_ms": 5,
        "queue_id": 1,
        "start_offset": 7,
        "topic": "t",
        **changes,
    }
    return Checkpoint(**values)  # type: ignore[arg-type]


def test_a_checkpoint_has_the_bytes_that_apache_gives_it() -> None:
    """B12."""
    assert encode_checkpoint(checkpoint()) == CHECKPOINT
    assert encode_checkpoint(checkpoint(put_again="3")) == PUT_AGAIN
    assert decode_checkpoint(CHECKPOINT) == checkpoint()
    assert decode_checkpoint(PUT_AGAIN).put_again == "3"


def test_an_acknowledgement_has_the_bytes_that_apache_gives_it() -> None:
    """B12."""
    ack = Ack(offset=1, broker_name="b", group="g", pop_time_ms=9, queue_id=1, start_offset=2, topic="t")
    batch = Ack(offset=-1, offsets=[4], group="g", pop_time_ms=9, queue_id=1, start_offset=2, topic="t")
    assert (encode_ack(ack), encode_ack(batch)) == (ACK, BATCH)
    assert (decode_ack(ACK), decode_ack(BATCH)) == (ack, batch)
    long = (
        b'{"ackOffset":1,"brokerName":"b","consumerGroup":"g","popTime":9,"queueId":1,"startOffset":2,'
        b'"topic":"t"}'
    )
    assert decode_ack(long) == ack


def test_messages_of_a_checkpoint_are_known_by_their_distance() -> None:
    """B12: those of an old one follow each other."""
    spread = checkpoint(diffs=[0, 3, 4], count=3)
    assert [spread.offset_of(index) for index in range(3)] == [7, 10, 11]
    assert [spread.index_of(offset) for offset in (6, 7, 8, 10, 11, 12)] == [-1, 0, -1, 1, 2, -1]
    old = checkpoint(diffs=None)
    assert [old.offset_of(index) for index in range(2)] == [7, 8]
    assert [old.index_of(offset) for offset in (6, 7, 8, 9)] == [-1, 0, 1, -1]
    assert old.revive_ms == 11


@pytest.mark.parametrize("body", [b"", b"[]", b'{"n":200}', b'{"n":3,"d":[0]}', b'{"n":"x"}'])
def test_what_is_no_checkpoint_is_refused(body: bytes) -> None:
    """B12."""
    with pytest.raises(HeaderError):
        decode_checkpoint(body)


def test_a_batch_of_acknowledgements_names_offsets_in_bits() -> None:
    """B12: as Java's client writes it."""
    body = (
        b'{"acks":[{"b":"BQE=","c":"g","it":3,"pt":2,"q":1,"r":"1","rq":4,"so":10,"t":"t"}],"brokerName":"b"}'
    )
    request = decode_batch_acks(body)
    (ack,) = request.acks
    assert request.broker_name == "b"
    assert ack.offsets == [10, 12, 18]
    assert (ack.group, ack.topic, ack.mark, ack.queue_id, ack.revive_queue) == ("g", "t", "1", 1, 4)


@pytest.mark.parametrize("bits", ["%%%", "A", "A" * 100_000])
def test_bits_that_cannot_be_are_refused(bits: str) -> None:
    """B12: no base64, or offsets far away."""
    body = b'{"acks":[{"b":"%b","c":"g","t":"t"}]}' % bits.replace("A" * 100, "/" * 100).encode()
    (ack,) = decode_batch_acks(body).acks
    with pytest.raises(HeaderError):
        _ = ack.offsets
