"""What is found in the properties of messages."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cometmq.store.dispatch_rules import put_values, unique_keys_of_all
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.properties import find_property

NAMES = st.sampled_from([b"TAGS", b"UNIQ_KEY", b"KEYS", b"INNER_NUM", b"WAIT", b"XKEYS", b"KEYSX", b""])
VALUES = st.sampled_from([b"", b"a", b"7F0000AB", b"a b", "größe".encode(), b"\xff", b"TAGS", b"KEYS\x01x"])
BLOCKS = st.builds(
    lambda items, end: b"\x02".join(items) + end,
    st.lists(
        st.builds(
            lambda name, mark, value: name + mark + value, NAMES, st.sampled_from([b"\x01", b""]), VALUES
        )
    ),
    st.sampled_from([b"", b"\x02"]),
)


@given(BLOCKS)
@example(b"UNIQ_KEY\x017F\x02UNIQ_KEY\x01\x02")
@example(b"KEYS\x01first\x02KEYS\x01last")
@example(b"UNIQ_KEY\x01KEYS\x01k")
def test_the_values_of_a_message_are_those_of_its_last_properties_of_each_name(block: bytes) -> None:
    """B8, B10: as they are when they are looked for one by one."""
    code, unique_key, keys, is_inner_batch = put_values(memoryview(block))
    tags = find_property(block, "TAGS")

    assert code == (tags_code(tags) if tags else 0)
    for found, name in ((unique_key, "UNIQ_KEY"), (keys, "KEYS")):
        assert (found.decode("utf-8", "replace") if found else None) == find_property(block, name)
    assert is_inner_batch == (find_property(block, "INNER_NUM") is not None)


def blocks_of(keys: Iterable[str], before: bytes = b"", behind: bytes = b"TAGS\x01a\x02") -> list[bytes]:
    return [before + f"UNIQ_KEY\x01{key}\x02".encode() + behind for key in keys]


def keys_of(count: int) -> list[str]:
    return [f"7F0000AB{number:08}" for number in range(count)]


def test_messages_that_differ_only_in_their_unique_keys_have_these() -> None:
    assert unique_keys_of_all(blocks_of(keys_of(200))) == [key.encode() for key in keys_of(200)]


@pytest.mark.parametrize(
    "blocks",
    [
        blocks_of(keys_of(2)),
        blocks_of([*keys_of(200), "7"]),
        [*blocks_of(keys_of(200)), *blocks_of(keys_of(1), behind=b"TAGS\x01b\x02")],
        [*blocks_of(keys_of(200)), *blocks_of(["7F0000AB\x02TAGS\x01b"])],
        blocks_of(keys_of(200), behind=b"KEYS\x01a\x02"),
        blocks_of(keys_of(200), behind=b"UNIQ_KEY\x01\x02"),
        [b"TAGS\x01a\x02"] * 200,
        [b""] * 200,
    ],
)
def test_the_unique_keys_of_other_messages_are_looked_for_in_each(blocks: list[bytes]) -> None:
    assert unique_keys_of_all(blocks) is None


@given(st.lists(BLOCKS, min_size=1, max_size=3))
def test_unique_keys_that_are_found_at_once_are_those_that_are_found_in_each(blocks: list[bytes]) -> None:
    many = blocks * 200
    found = unique_keys_of_all(many)
    if found is not None:
        assert [(put_values(many[0])[0], key, None) for key in found] == [put_values(b)[:3] for b in many]
