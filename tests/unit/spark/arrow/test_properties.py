"""Batches of messages that are alike, or nearly: the same rows as the decoder that reads one at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.spark.arrow.batches import to_batch
from cometmq.spark.arrow.gather import Positions
from cometmq.spark.arrow.properties import UniformProperties, common_value, uniform_properties
from cometmq.spark.arrow.record_fields import RecordFields
from cometmq.spark.arrow.record_scan import record_starts
from cometmq.wire.record.codec import Record
from cometmq.wire.record.properties import encode_properties
from tests.unit.spark.records_kit import CLIENT_V6, placed, record, rows_of


def check(records: list[Record]) -> None:
    content = placed(records)
    batch = to_batch(RecordFields(content, record_starts(content)), broker_name="b", include_properties=True)
    batch.validate(full=True)
    assert batch.to_pylist() == rows_of(content, record_starts(content).tolist(), "b", with_properties=True)


def pieces(*texts: bytes) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], Positions, Positions]:
    content = np.frombuffer(b"".join(texts), np.uint8)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return content, ends - np.array([len(text) for text in texts]), ends


def alike(*blocks: bytes) -> UniformProperties | None:
    return uniform_properties(*pieces(*blocks))


def test_pieces_that_are_all_the_same_are_one_piece() -> None:
    assert common_value(*pieces(b"orders", b"orders")) == b"orders"
    assert common_value(*pieces(b"orders", b"ordert")) is None
    assert common_value(*pieces(b"orders", b"order")) is None
    assert common_value(*pieces(b"", b"")) == b""


def test_properties_that_differ_only_in_values_of_one_length_are_columns() -> None:
    found = alike(b"A\x01one\x02B\x01x\x02", b"A\x01two\x02B\x01y\x02")
    assert found is not None
    assert found.values("A").to_pylist() == ["one", "two"]
    assert found.values("B").to_pylist() == ["x", "y"]
    assert found.values("C").to_pylist() == [None, None]


def test_of_a_name_that_occurs_twice_the_last_one_counts() -> None:
    found = alike(b"A\x01x\x02B\x01one\x02A\x01yy\x02", b"A\x01x\x02B\x01two\x02A\x01zz\x02")
    assert found is not None
    assert found.values("A").to_pylist() == ["yy", "zz"]
    maps = found.maps(pa.map_(pa.string(), pa.string())).to_pylist()
    assert [dict(each) for each in maps] == [{"A": "yy", "B": "one"}, {"A": "zz", "B": "two"}]


@pytest.mark.parametrize(
    "blocks",
    [
        (b"A\x01one\x02", b"B\x01one\x02"),
        (b"A\x01one\x02", b"A\x01o\x02e\x02"),
        (b"A\x01one\x02", b"A\x01o\x01e\x02"),
        (b"A\x01one\x02", b"A\x01o\x00e\x02"),
        (b"A\x01one\x02", b"A\x01ones\x02"),
        (b"A\x01one\x02", b"A\x01one\x01"),
        (b"A\x01o\x01e\x02", b"A\x01o\x01e\x02"),
        (b"A\x01\x02", b"A\x01\x02"),
        (b"\x01one\x02", b"\x01one\x02"),
        (b"A\x02", b"A\x02"),
        (b"A\x01x\x02A\x01y\x02", b"A\x01z\x02A\x01y\x02"),
    ],
)
def test_blocks_that_leave_room_for_doubt_are_not_alike(blocks: tuple[bytes, ...]) -> None:
    assert alike(*blocks) is None


def test_alike_messages_have_the_rows_that_a_decoder_of_single_ones_gives() -> None:
    names = {"UNIQ_KEY": "0A00000100{:04}", "TAGS": "paid", "KEYS": "k{:04}", "colour": "grün"}
    blocks = [
        encode_properties({name: text.format(number) for name, text in names.items()})
        for number in range(100)
    ]
    check([record(b"x" * 30, block) for block in blocks])


def test_alike_messages_without_properties_have_none() -> None:
    check([record(b"x" * 30) for _ in range(100)])


def test_a_value_that_is_no_text_gets_replacement_characters() -> None:
    check([record(block=b"A\x01\xff\x41\x02"), record(block=b"A\x01ab\x02")])


def test_one_client_of_many_with_a_longer_address_changes_nothing_for_the_others() -> None:
    check([record(), record(born_host=CLIENT_V6), record()])


BLOCKS = st.sampled_from(
    [b"", b"TAGS\x01a\x02", b"TAGS\x01b\x02", b"TAGS\x01b", b"KEYS\x01a\x02", b"TAGS\x01\x02\x02"]
)


@given(st.lists(st.tuples(BLOCKS, st.sampled_from(["orders", "ordert", "o"])), min_size=1, max_size=8))
def test_any_mixture_has_the_rows_of_its_messages(messages: list[tuple[bytes, str]]) -> None:
    check([record(block=block, topic=topic) for block, topic in messages])
