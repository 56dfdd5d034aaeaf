"""Answers of servers, in a form that compares well."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from cometmq.wire.frame.command import Command
from cometmq.wire.record.codec import decode_record


class Told(NamedTuple):
    """An answer."""

    code: int
    remark: str | None
    fields: Mapping[str, str | None]
    body: bytes

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of the messages in the answer."""
        found, at = [], 0
        while at < len(self.body):
            record = decode_record(self.body, at)
            found.append(bytes(record.body))
            at += record.total_size
        return found


def told(answer: Command) -> Told:
    return Told(answer.code, answer.remark, dict(answer.fields()), bytes(answer.body))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
