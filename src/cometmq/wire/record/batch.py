"""Batch bodies: several messages for one topic in one send request.

Rules kept here:
- An item is `total size, magic 0, checksum 0, flag, body length, body, properties length, properties`. The
  request has the topic.
- A batch is items and nothing else. Magic and checksum are ignored, as by the peers; a total size that does
  not fit the lengths inside is an error.
- Decoded bodies and properties are views of the request; those of small messages are copies, which cost less.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.model.errors import MessageError
from cometmq.wire.record.layout import RecordError
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH, decode_properties

if TYPE_CHECKING:
    from cometmq.wire.record.layout import ReadableBuffer

_FIXED: Final = struct.Struct(">iiiii")
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
_BODY_AT: Final = _FIXED.size
_LENGTH_SIZE: Final = _PROPERTIES_LENGTH.size
_SMALL: Final = 1024
"""A batch whose first item is no larger counts as one of small messages."""
MIN_ITEM_SIZE: Final = _BODY_AT + _LENGTH_SIZE


class BatchItem(msgspec.Struct, gc=False):
    """One message of a batch."""

    body: bytes | bytearray | memoryview
    properties_block: bytes | memoryview = b""
    flag: int = 0

    def properties(self) -> dict[str, str]:
        """Returns the properties, decoded anew at every call."""
        return decode_properties(self.properties_block)


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    parts: list[bytes | bytearray | memoryview] = []
    for item in items:
        body, block = item.body, item.properties_block
        if len(block) > MAX_PROPERTIES_LENGTH:
            raise MessageError(
                f"the properties take {len(block)} bytes, {MAX_PROPERTIES_LENGTH} are possible"
            )
        total_size = MIN_ITEM_SIZE + len(body) + len(block)
        try:
            parts.append(_FIXED.pack(total_size, 0, 0, item.flag, len(body)))
        except struct.error as error:
            raise MessageError(f"a field of a batch item does not fit into its bits: {error}") from None
        parts += (body, _PROPERTIES_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decode_batch(buffer: ReadableBuffer) -> list[BatchItem]:
    view: memoryview | bytes = memoryview(buffer)
    items: list[BatchItem] = []
    add, fixed, properties_length = items.append, _FIXED.unpack_from, _PROPERTIES_LENGTH.unpack_from
    position, length = 0, len(view)
    last = length - MIN_ITEM_SIZE
    if last >= 0 and fixed(view)[0] <= _SMALL:
        view = bytes(view)
    # Like `_decode_item`, without a call for each item; errors are left to it.
    while position <= last:
        total_size, _, _, flag, body_length = fixed(view, position)
        end = position + total_size
        body_at = position + _BODY_AT
        body_end = body_at + body_length
        properties_at = body_end + _LENGTH_SIZE
        if (
            end > length
            or body_length < 0
            or properties_at > end
            or properties_length(view, body_end)[0] != end - properties_at
        ):
            break
        add(BatchItem(view[body_at:body_end], view[properties_at:end], flag))
        position = end
    while position < length:
        item, position = _decode_item(view, position)
        add(item)
    return items


def item_ends(buffer: ReadableBuffer) -> list[int]:
    """Returns where each message in the body of a batch ends."""
    view = memoryview(buffer)
    ends: list[int] = []
    position = 0
    while position < len(view):
        _, position = _decode_item(view, position)
        ends.append(position)
    return ends


def _decode_item(view: memoryview | bytes, offset: int) -> tuple[BatchItem, int]:
    """Returns the item at this offset, and where the next one begins."""
    available = len(view) - offset
    if available < MIN_ITEM_SIZE:
        raise RecordError(offset, f"a batch item of {MIN_ITEM_SIZE} bytes or more", f"{available} bytes")
    total_size, _, _, flag, body_length = _FIXED.unpack_from(view, offset)
    if not MIN_ITEM_SIZE <= total_size <= available:
        raise RecordError(offset, f"a total size from {MIN_ITEM_SIZE} to {available}", total_size)
    end = offset + total_size
    body_at = offset + _FIXED.size
    body_end = body_at + body_length
    properties_at = body_end + _PROPERTIES_LENGTH.size
    if body_length < 0 or properties_at > end:
        raise RecordError(body_at - 4, f"the length of a body that ends before {end}", body_length)
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(view, body_end)
    if properties_length < 0 or properties_at + properties_length != end:
        raise RecordError(body_end, f"the length of properties that end at {end}", properties_length)
    return BatchItem(view[body_at:body_end], view[properties_at:end], flag), end
