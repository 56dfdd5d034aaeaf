"""What is found in the properties of messages."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cometmq.store.dispatch_rules import put_values
from cometmq.wire.java_hash import tags_code
from cometmq.wire.properties import find_property

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
