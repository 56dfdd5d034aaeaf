"""The properties block of a message: names and values to text or bytes, and back.

Rules kept here:
- Each property is `name 0x01 value 0x02`. The last separator is always written and may be missing when read.
- Reading never fails. Like the peers it skips an item without a name, separator or value. Of a name that
  occurs twice the last one counts; bytes that are not UTF-8 become the replacement character.
- Writing leaves out properties without a value, and refuses text with a separator in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cometmq.model.errors import MessageError
from cometmq.model.message_properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

MAX_PROPERTIES_LENGTH: Final = 32767
"""The length of a block is a signed 16-bit number."""


def format_properties(properties: Mapping[str, str | None]) -> str:
    """Returns the block as text, for request headers."""
    items = [f"{name}\x01{value}" for name, value in properties.items() if value]
    if not items:
        return ""
    items.append("")
    text = PROPERTY_SEPARATOR.join(items)
    count = len(items) - 1
    if (
        text.count(NAME_VALUE_SEPARATOR) != count
        or text.count(PROPERTY_SEPARATOR) != count
        or "" in properties
    ):
        _refuse_unreadable(properties)
    return text


def encode_properties(properties: Mapping[str, str | None]) -> bytes:
    """Returns the block as bytes, for records and batches."""
    text = format_properties(properties)
    try:
        block = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MessageError(
            f"a property cannot be written as UTF-8: {text[error.start : error.end]!r}"
        ) from None
    if len(block) > MAX_PROPERTIES_LENGTH:
        raise MessageError(
            f"the properties take {len(block)} bytes, {MAX_PROPERTIES_LENGTH} are possible; use the body"
        )
    return block


def _refuse_unreadable(properties: Mapping[str, str | None]) -> None:
    for name, value in properties.items():
        if not value:
            continue
        if not name:
            raise MessageError(f"the property with value {value!r} has no name")
        for part in (name, value):
            if NAME_VALUE_SEPARATOR in part or PROPERTY_SEPARATOR in part:
                raise MessageError(
                    f"property {name!r}: {part!r} contains a separator character (0x01 or 0x02)"
                )


def parse_properties(text: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for item in text.split(PROPERTY_SEPARATOR):
        name, _, value = item.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def decode_properties(block: bytes | memoryview) -> dict[str, str]:
    return parse_properties(str(block, "utf-8", "replace"))


def find_property(block: bytes | memoryview, name: str) -> str | None:
    """Returns the value of one property without decoding the others."""
    wanted = _begin_of(name)
    before, found, rest = (b"\x02" + block).rpartition(wanted)
    while found:
        value = rest.partition(b"\x02")[0]
        if value:
            return value.decode("utf-8", "replace")
        before, found, rest = before.rpartition(wanted)
    return None


@lru_cache(1024)
def _begin_of(name: str) -> bytes:
    return f"\x02{name}\x01".encode()
