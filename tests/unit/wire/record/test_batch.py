"""The body of a batch."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.model.errors import MessageError
from cometmq.wire.record.batch import BatchItem, decode_batch, encode_batch
from cometmq.wire.record.layout import RecordError
from cometmq.wire.record.properties import encode_properties

FRAMES = Path(__file__).parents[3] / "data" / "frames.jsonl"

batch_items = st.builds(
    BatchItem,
    body=st.binary(max_size=100),
    properties_block=st.binary(max_size=60),
    flag=st.integers(-(2**31), 2**31 - 1),
)


def sent_batches() -> list[bytes]:
    """The bodies of the batches that a Java client sent, once with JSON and once with binary headers."""
    frames = [json.loads(line) for line in FRAMES.read_text("utf-8").splitlines()]
    return [
        base64.b64decode(frame["frame"])[-frame["decoded"]["bodyLength"] :]
        for frame in frames
        if frame["request"] == "SEND_BATCH_MESSAGE" and frame["kind"] == "request"
    ]


def items_or_error(body: bytes | bytearray) -> list[BatchItem] | RecordError:
    try:
        return decode_batch(body)
    except RecordError as error:
        return error


def test_batches_of_a_java_client_are_read_and_written_byte_for_byte() -> None:
    """B6"""
    batches = sent_batches()
    assert len(batches) == 2

    for body in batches:
        items = decode_batch(body)
        assert [bytes(item.body) for item in items] == [f"batch {n}".encode() for n in range(5)]
        for number, item in enumerate(items):
            properties = item.properties()
            assert len(properties.pop("UNIQ_KEY")) == 56
            assert properties == {
                "KEYS": f"bk{number}",
                "i": str(number),
                "WAIT": "true",
                "TAGS": "TagBatch",
            }
        assert encode_batch(items) == body


def test_the_bytes_of_an_item() -> None:
    item = BatchItem(b"hi", encode_properties({"a": "b"}), flag=-1)

    assert encode_batch([item]) == bytes.fromhex(
        "0000001c 00000000 00000000 ffffffff 00000002 6869 0004 61016202"
    )


@settings(deadline=None)
@given(st.lists(batch_items, max_size=5))
def test_a_batch_comes_back_as_it_was(items: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(items)) == items


@settings(deadline=None)
@given(st.lists(batch_items, min_size=1, max_size=3), st.data())
def test_a_batch_that_breaks_off_within_an_item_is_an_error(
    items: list[BatchItem], data: st.DataObject
) -> None:
    whole = encode_batch(items)
    ends = {len(encode_batch(items[:count])) for count in range(len(items) + 1)}
    length = data.draw(st.integers(0, len(whole)).filter(lambda n: n not in ends))

    with pytest.raises(RecordError) as caught:
        decode_batch(whole[:length])
    assert caught.value.offset <= length


@settings(deadline=None)
@given(st.lists(batch_items, min_size=1, max_size=3), st.integers(0), st.binary(min_size=1, max_size=6))
def test_changed_bytes_are_a_batch_or_a_record_error(
    items: list[BatchItem], place: int, change: bytes
) -> None:
    body = bytearray(encode_batch(items))
    at = place % len(body)
    body[at : at + len(change)] = change
    outcome = items_or_error(body)
    if isinstance(outcome, RecordError):
        assert 0 <= outcome.offset < len(body)
    else:
        assert len(encode_batch(outcome)) == len(body)


@settings(deadline=None)
@given(st.binary(max_size=120))
def test_any_bytes_are_a_batch_or_a_record_error(body: bytes) -> None:
    outcome = items_or_error(body)
    if isinstance(outcome, RecordError):
        assert 0 <= outcome.offset < len(body)
    else:
        assert len(encode_batch(outcome)) == len(body)


def test_magic_and_checksum_of_an_item_are_ignored() -> None:
    body = bytearray(encode_batch([BatchItem(b"hi")]))
    body[4:12] = b"\xff" * 8

    assert decode_batch(body) == [BatchItem(b"hi")]


def test_properties_that_are_too_long_are_refused() -> None:
    with pytest.raises(MessageError, match="32768 bytes"):
        encode_batch([BatchItem(b"", bytes(32768))])


def test_a_flag_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MessageError, match="does not fit"):
        encode_batch([BatchItem(b"", flag=2**31)])
