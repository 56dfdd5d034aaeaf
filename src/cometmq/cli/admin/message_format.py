"""Formats of messages, such as `%t %p %o %k %s\\n`: kcat's letters, and some for what only RocketMQ has.

Rules kept here:
- A format is read once. A letter that it does not know is refused, and so is a half escape.
- Bodies are written as the bytes they are, and nothing is added: a line break is part of the format.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cometmq.cli.common.output import UsageError

if TYPE_CHECKING:
    from cometmq.model.message import StoredMessage

Format = Annotated[
    str | None,
    typer.Option("--format", help="Print in this format: '%t %p %o %k %s\\n'.", metavar="FORMAT"),
]

_PIECE: Final = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}

Field = Callable[["StoredMessage"], object]

PLACEHOLDERS: Final[dict[str, Field]] = {
    "t": lambda message: message.topic,
    "b": lambda message: message.broker_name,
    "p": lambda message: message.queue_id,
    "o": lambda message: message.queue_offset,
    "k": lambda message: " ".join(message.keys),
    "K": lambda message: len(" ".join(message.keys).encode()),
    "g": lambda message: message.tags or "",
    "s": lambda message: message.body,
    "S": lambda message: len(message.body),
    "R": lambda message: len(message.body).to_bytes(4, "big"),
    "T": lambda message: message.store_timestamp_ms,
    "B": lambda message: message.born_timestamp_ms,
    "h": lambda message: ",".join(f"{name}={value}" for name, value in sorted(message.properties.items())),
    "i": lambda message: message.msg_id,
    "I": lambda message: message.offset_msg_id,
    "r": lambda message: message.reconsume_times,
}


class MessageFormat:
    """A format that was understood."""

    def __init__(self, text: str) -> None:
        self._pieces = [_piece(match) for match in _PIECE.finditer(text)]

    def bytes_of(self, message: StoredMessage) -> bytes:
        """A message in this format."""
        return b"".join(
            piece if isinstance(piece, bytes) else _as_bytes(piece(message)) for piece in self._pieces
        )

    def write(self, messages: Iterable[StoredMessage]) -> None:
        """Write messages to standard output."""
        sys.stdout.flush()
        for message in messages:
            sys.stdout.buffer.write(self.bytes_of(message))
        sys.stdout.buffer.flush()


def format_of(text: str | None, *, as_json: bool) -> MessageFormat | None:
    """The format of a command; None if it has none."""
    if text is not None and as_json:
        raise UsageError("say --format or --json, not both")
    return None if text is None else MessageFormat(text)


def _piece(match: re.Match[str]) -> bytes | Field:
    letter, escape = match.groups()
    if letter == "%":
        return b"%"
    if letter is not None:
        if letter not in PLACEHOLDERS:
            known = " ".join(f"%{each}" for each in PLACEHOLDERS)
            raise UsageError(f"--format has no %{letter}; it has {known} and %%")
        return PLACEHOLDERS[letter]
    if escape is None:
        return match[0].encode()
    if len(escape) == len("x00"):
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise UsageError(f"--format has no \\{escape}; it has \\n \\r \\t \\0 \\xNN and \\\\")
    return _ESCAPES[escape]


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
