"""The fields of many records as columns of numbers: where everything is, without a look at each record.

Rules kept here:
- A record counts only if its lengths add up to its size, as in `wire/record/codec.py`. What is wrong is
  in `bad`, and nothing of such a record may be used.
- IPv6 hosts move the fields behind them; only then the fields are read a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from cometmq.model.sysflag import BORN_HOST_V6, HOST_V6_MASK, STORE_HOST_V6
from cometmq.spark.arrow.gather import Mask, Positions
from cometmq.wire.record.ids import PACKED_IPV4_LENGTH, PACKED_IPV6_LENGTH
from cometmq.wire.record.layout import (
    BORN_HOST_AT,
    FIXED_V4,
    MAGIC_V2,
    MAX_TOPIC_LENGTH_V1,
    MAX_TOPIC_LENGTH_V2,
    RecordError,
    field_at,
    numpy_fields,
)
from cometmq.wire.record.properties import MAX_PROPERTIES_LENGTH

if TYPE_CHECKING:
    from cometmq.wire.record.layout import ReadableBuffer

Bytes = npt.NDArray[np.uint8]

_FIXED_SIZE: Final = FIXED_V4.size
_LONGER: Final = PACKED_IPV6_LENGTH - PACKED_IPV4_LENGTH
STORE_HOST_AT: Final = field_at("store_host")
_FIXED: Final = np.dtype(numpy_fields("<u8"))
"""The fixed part; hosts keep the order of their bytes."""


class RecordFields:
    """The fields of the records that begin at `starts`, each of which is wholly inside the buffer."""

    def __init__(self, buffer: ReadableBuffer, starts: Positions) -> None:
        self.buffer = buffer
        self.bytes: Bytes = np.frombuffer(buffer, np.uint8)
        self.starts = starts
        self.fixed = _windows(self.bytes, f"V{_FIXED_SIZE}")[starts].view(_FIXED)
        self.ends: Positions = starts + self.fixed["total_size"]
        self.sys_flags: npt.NDArray[np.int32] = self.fixed["sys_flag"].astype(np.int32)
        self.has_v6 = bool((self.sys_flags & HOST_V6_MASK).any())
        self._behind_born_host = self._longer(BORN_HOST_V6)
        self._behind_store_host = self._behind_born_host + self._longer(STORE_HOST_V6)
        self.body_starts: Positions = starts + _FIXED_SIZE + self._behind_store_host
        self.bad: Mask = self.body_starts > self.ends
        self._find_parts()

    def __len__(self) -> int:
        return len(self.starts)

    def _longer(self, host_bit: int) -> Positions | int:
        return np.where(self.sys_flags & host_bit, _LONGER, 0) if self.has_v6 else 0

    def _find_parts(self) -> None:
        """Find body, topic and properties; the places of bad records are at their beginnings."""
        lengths = self._number("body_length", self._behind_store_host).astype(np.int64)
        topic_length_at = self.body_starts + lengths
        is_v2 = self.fixed["magic"] == MAGIC_V2
        self.bad |= (lengths < 0) | (topic_length_at + 3 + is_v2 > self.ends)
        topic_length_at[self.bad] = self.starts[self.bad]
        topic_lengths = self.bytes[topic_length_at].astype(np.int64)
        topic_starts = topic_length_at + 1
        if is_v2.any():
            topic_lengths[is_v2] = topic_lengths[is_v2] << 8 | self.bytes[topic_starts[is_v2]]
            topic_starts += is_v2
        topic_ends = topic_starts + topic_lengths
        longest = np.where(is_v2, MAX_TOPIC_LENGTH_V2, MAX_TOPIC_LENGTH_V1)
        self.bad |= (topic_lengths > longest) | (topic_ends + 2 > self.ends)
        topic_ends[self.bad] = self.starts[self.bad]
        block_lengths = self.bytes[topic_ends].astype(np.int64) << 8 | self.bytes[topic_ends + 1]
        self.bad |= (block_lengths > MAX_PROPERTIES_LENGTH) | (topic_ends + 2 + block_lengths != self.ends)
        self.body_ends = topic_length_at
        self.topic_starts, self.topic_ends = topic_starts, topic_ends
        self.block_starts: Positions = topic_ends + 2

    def _number(self, name: str, behind: Positions | int) -> npt.NDArray[np.generic]:
        """A field behind a host."""
        if not self.has_v6:
            fixed: npt.NDArray[np.generic] = self.fixed[name]
            return fixed
        kind = _FIXED[name]
        places = np.minimum(self.starts + field_at(name) + behind, len(self.bytes) - kind.itemsize)
        moved: npt.NDArray[np.generic] = _windows(self.bytes, kind)[places]
        return moved

    @property
    def store_times_ms(self) -> npt.NDArray[np.int64]:
        return self._number("store_timestamp_ms", self._behind_born_host).astype(np.int64)

    @property
    def reconsume_times(self) -> npt.NDArray[np.int32]:
        return self._number("reconsume_times", self._behind_store_host).astype(np.int32)

    def store_hosts_v4(self) -> npt.NDArray[np.uint64]:
        """The store hosts, packed, where they are IPv4."""
        return self._number("store_host", self._behind_born_host).astype(np.uint64)

    def column(self, name: str, kind: type[np.generic]) -> npt.NDArray[np.generic]:
        """A field before the hosts, in the byte order of this machine."""
        return self.fixed[name].astype(kind)

    def born_host(self, row: int) -> bytes:
        """The born host of one record, packed."""
        return self._host(int(self.starts[row]) + BORN_HOST_AT, int(self.sys_flags[row]) & BORN_HOST_V6)

    def store_host(self, row: int) -> bytes:
        """The store host of one record, packed."""
        flags = int(self.sys_flags[row])
        place = int(self.starts[row]) + STORE_HOST_AT + (_LONGER if flags & BORN_HOST_V6 else 0)
        return self._host(place, flags & STORE_HOST_V6)

    def _host(self, place: int, is_v6: int) -> bytes:
        return self.bytes[place : place + (PACKED_IPV6_LENGTH if is_v6 else PACKED_IPV4_LENGTH)].tobytes()

    def only(self, rows: Mask) -> RecordFields:
        """The fields of some of the records."""
        return self if rows.all() else RecordFields(self.buffer, self.starts[rows])

    def check(self) -> None:
        """Refuse records that are none."""
        if self.bad.any():
            row = int(np.flatnonzero(self.bad)[0])
            raise self.error(row, int(self.starts[row]))

    def error(self, row: int, place: int) -> RecordError:
        """What is wrong with a bad record, which is said to be at a place."""
        size = int(self.fixed["total_size"][row])
        return RecordError(place, f"a record whose lengths add up to its size of {size}", "other lengths")


def _windows(content: Bytes, kind: str | np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """A value of this kind from every byte on, without a copy."""
    dtype = np.dtype(kind)
    count = max(len(content) - dtype.itemsize + 1, 0)
    return np.ndarray((count,), dtype, content, strides=(1,))
