"""Attributes of topics: which there are, and how a request changes them.

Rules kept here: a request says `+key=value` to set an attribute and `-key` to remove it, separated by commas.
An unknown key, a value that an attribute cannot have, and a change of what is fixed when the topic is made
are refused with Apache's words, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cometmq.model.errors import CometError
from cometmq.model.java_numbers import java_long
from cometmq.wire.codes import ResponseCode

QUEUE_TYPE: Final = "queue.type"
CLEANUP_POLICY: Final = "cleanup.policy"
MESSAGE_TYPE: Final = "message.type"
RESERVE_TIME: Final = "reserve.time"

UNSUPPORTED: Final = ((QUEUE_TYPE, "BatchCQ"), (CLEANUP_POLICY, "COMPACTION"))
"""Attributes of RocketMQ that this broker does not support."""

_LONGEST: Final = 2**63 - 1


class _Attribute(msgspec.Struct, frozen=True):
    is_changeable: bool
    values: tuple[str, ...] = ()
    """Without any, a number from -1 on."""


_KNOWN: Final = {
    QUEUE_TYPE: _Attribute(False, ("BatchCQ", "SimpleCQ")),
    CLEANUP_POLICY: _Attribute(False, ("DELETE", "COMPACTION")),
    MESSAGE_TYPE: _Attribute(True, ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")),
    RESERVE_TIME: _Attribute(True),
}


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes that a request asks for; keys begin with their sign."""
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if equals and "+" not in key:
            raise _wrong(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise _wrong(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise _wrong(f"key duplication: {key}")
        changes[key] = value
    return changes


def changed(current: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes after a change; those of a new topic if there are none `current`."""
    attributes = dict(current or {})
    met: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if not key or "+" in key or "-" in key:
            raise _wrong("kv string format wrong.")
        if key in met:
            raise _wrong(f"alter duplication key. key: {key}")
        met.add(key)
        if sign == "-":
            if current is None:
                raise _wrong(f"only add attribute is supported while creating topic. key: {key}")
            if key not in attributes:
                raise _wrong(f"attempt to delete a nonexistent key: {key}")
        elif sign != "+":
            raise _wrong(f"wrong format key: {key}")
        _check(key, value if sign == "+" else None, is_new=current is None)
        if sign == "+":
            attributes[key] = value
        else:
            del attributes[key]
    return attributes


def _check(key: str, value: str | None, *, is_new: bool) -> None:
    known = _KNOWN.get(key)
    if known is None:
        raise _wrong(f"unsupported key: {key}")
    if not is_new and not known.is_changeable:
        raise _wrong(f"attempt to update an unchangeable attribute. key: {key}")
    if value is None:
        return
    if known.values and value not in known.values:
        raise _wrong(f"value is not in set: {', '.join(known.values)}")
    number = java_long(value)
    if not known.values and (number is None or not -1 <= number <= _LONGEST):
        raise _wrong(f"value is not in range(-1, {_LONGEST})")
    if (key, value) in UNSUPPORTED:
        raise _wrong(f"{key} {value} is not supported by this broker; leave it out")


def _wrong(message: str) -> CometError:
    return CometError(message, code=ResponseCode.SYSTEM_ERROR)
