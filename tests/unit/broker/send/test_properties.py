"""The properties of a message as Apache's broker stores them, byte for byte (B6)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cometmq.broker.send.properties import PropertyLayouts, java_order, stored_block
from cometmq.model.message_properties import CLUSTER, MSG_REGION, TRACE_ON
from cometmq.store.dispatch_rules import put_values
from cometmq.wire.record.properties import encode_properties
from cometmq.wire.record.properties import parse_properties as parse_text
from cometmq.wire.record.walk import RecordWalk
from tests.unit.store.store_vectors import unpack_clean_store

ADDED = {MSG_REGION: "DefaultRegion", TRACE_ON: "true", CLUSTER: "DefaultCluster"}


def parse(block: bytes) -> dict[str, str]:
    return parse_text(block.decode())


def quickly(layouts: PropertyLayouts, block: bytes) -> bytes | None:
    """What is stored the quick way; None if there is no such way."""
    shape = layouts.find(block) or layouts.find(block)
    stored = None if shape is None else shape.read(block)
    return None if stored is None else stored[0]


def test_the_order_is_the_one_that_apache_stored(tmp_path: Path) -> None:
    """B6: of every message that came from a client, one by one, in the recorded store."""
    layouts = PropertyLayouts(ADDED)
    seen = quick = 0
    for path in sorted((unpack_clean_store(tmp_path, "commitlog") / "commitlog").iterdir()):
        for record in RecordWalk(path.read_bytes()):
            properties = record.properties()
            block = bytes(record.properties_block)
            if not ADDED.keys() <= properties.keys() or block.count(b"\x01") != len(properties):
                continue  # written by the broker itself, or in a batch, whose own properties come last
            if "1ST_POP_TIME" in properties:
                continue  # put together by the pop service from a map of another size
            assert stored_block(properties) == block
            seen += 1
            sent = {name: value for name, value in properties.items() if name not in ADDED}
            mixed = dict(random.Random(seen).sample(list(sent.items()), len(sent)))
            stored = quickly(layouts, encode_properties(mixed))
            if stored is not None:
                assert stored == block
                quick += 1
    assert seen > 80
    assert quick > 50


def test_a_large_map_has_more_buckets() -> None:
    """B6: Java doubles them when three quarters are taken."""
    few = [f"name{number}" for number in range(96)]
    many = [*few, "name96"]
    assert java_order(few) != sorted(few)
    assert [name for name in java_order(many) if name != "name96"] != java_order(few)


def test_names_of_one_bucket_keep_the_order_in_which_they_were_put() -> None:
    """B6: as in Java's chains."""
    assert java_order(["Aa", "BB"]) == ["Aa", "BB"]  # which have the same hash
    assert java_order(["BB", "Aa"]) == ["BB", "Aa"]


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"TAGS\x01a\x02",  # no unique key
        b"UNIQ_KEY\x01A",  # no separator at the end
        b"UNIQ_KEY\x01A\x02TAGS\x01\x02",
        b"UNIQ_KEY\x01A\x02\x01a\x02",
        b"UNIQ_KEY\x01A\x01B\x02TAGS\x02",
        b"UNIQ_KEY\x01A\x02UNIQ_KEY\x01B\x02",
        b"UNIQ_KEY\x01A\x02DELAY\x011\x02",
        b"UNIQ_KEY\x01A\x02TRAN_MSG\x01true\x02",
        b"UNIQ_KEY\x01A\x02POP_CK\x01x\x02",
        b"UNIQ_KEY\x01A\x02TIMER_DELAY_SEC\x011\x02",
        b"UNIQ_KEY\x01A\x02INNER_NUM\x011\x02",
        b"UNIQ_KEY\x01A\x02" + b"".join(b"n%d\x01v\x02" % number for number in range(64)),
    ],
)
def test_only_plain_properties_have_a_quick_way(block: bytes) -> None:
    """B6, B7: everything else is looked at closely."""
    layouts = PropertyLayouts(ADDED)
    assert quickly(layouts, block) is None
    assert quickly(layouts, b"UNIQ_KEY\x01A\x02") is not None
    assert quickly(layouts, block) is None


def test_what_the_broker_says_of_itself_wins() -> None:
    """B6: a client cannot set it."""
    layouts = PropertyLayouts(ADDED)
    stored = quickly(layouts, b"UNIQ_KEY\x01A\x02CLUSTER\x01other\x02")
    assert stored is not None
    assert b"CLUSTER\x01DefaultCluster\x02" in stored
    assert b"other" not in stored


def test_names_and_values_may_contain_anything_else() -> None:
    """B6: percent signs for example, which the templates of shapes use."""
    layouts = PropertyLayouts({**ADDED, MSG_REGION: "100%"})
    sent = {"UNIQ_KEY": "A", "50%b": "%b%d%", "%": "%"}
    for _ in range(2):
        stored = quickly(layouts, encode_properties(sent))
        assert stored == stored_block({**sent, **ADDED, MSG_REGION: "100%"})


def test_the_table_of_shapes_is_bounded() -> None:
    """B6: a producer that invents names does not grow it for ever."""
    layouts = PropertyLayouts(ADDED)
    for number in range(5000):
        assert layouts.find(b"UNIQ_KEY\x01A\x02once%d\x01v\x02" % number) is None
    assert len(layouts) == 0
    for number in range(5000):
        assert quickly(layouts, b"UNIQ_KEY\x01A\x02n%d\x01v\x02" % number) is not None
    assert 0 < len(layouts) <= 4096


@pytest.mark.parametrize(("text", "waits"), [("true", True), ("false", False), (None, True)])
def test_a_message_may_say_that_nobody_waits_for_it(text: str | None, waits: bool) -> None:
    """B5."""
    block = encode_properties({"UNIQ_KEY": "A", "WAIT": text})
    layouts = PropertyLayouts(ADDED)
    assert layouts.find(block) is None
    shape = layouts.find(block)
    assert shape is not None
    assert shape.read(block) == (stored_block({**parse(block), **ADDED}), 0, b"A", None, waits)


@pytest.mark.parametrize("names", [["UNIQ_KEY"], ["KEYS", "UNIQ_KEY", "TAGS"], ["TAGS", "x", "UNIQ_KEY"]])
def test_what_queue_and_index_want_to_know_is_found_on_the_way(names: list[str]) -> None:
    """B6, B10: the same that is found in what is stored."""
    layouts = PropertyLayouts(ADDED)
    for number in range(4):
        block = encode_properties({name: f"{name}-{number}" for name in names})
        shape = layouts.find(block)
        stored = None if shape is None else shape.read(block)
        if number:
            assert stored is not None
            assert (*stored[1:4], False) == put_values(stored[0])


def test_properties_of_another_shape_are_not_read() -> None:
    """B6: the last message of a topic may have had others."""
    layouts = PropertyLayouts(ADDED)
    block = encode_properties({"UNIQ_KEY": "A", "TAGS": "a"})
    shape = layouts.find(block) or layouts.find(block)
    assert shape is not None
    assert shape.read(encode_properties({"UNIQ_KEY": "A"})) is None
    assert shape.read(encode_properties({"TAGS": "a", "UNIQ_KEY": "A"})) is None
