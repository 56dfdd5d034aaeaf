"""One-pass request decoding: header and declared custom fields by one decoder for each request code.

Every known client begins a JSON header with the code. The first bytes thus tell the struct of the custom
fields, and one decoder makes the whole command.

Rules kept here: the result equals that of `decode_command` and `Command.header`. A header that this decoder
refuses, or that has another code after all, is left to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from cometmq.wire.frame.command import RESPONSE_FLAG, Command
from cometmq.wire.frame.framing import JSON
from cometmq.wire.header.json import LANGUAGE_BYTES, REFUSED, language_name
from cometmq.wire.header.schema import Header, Int32

SHORT_START_BYTES: Final = 12
LONG_START_BYTES: Final = 15
"""Length of the start that tells a code: for codes of two or three digits, and of six."""

_FEW_DIGITS: Final = range(10, 1_000)
_SIX_DIGITS: Final = range(100_000, 1_000_000)

RequestReader = Callable[[bytes, memoryview], Command | None]
"""Makes a command from header and body; returns None to leave it to `decode_command`."""


def start_of_request(code: int) -> bytes | None:
    """Returns the usual first bytes of a JSON header with this code; None for codes of other lengths."""
    if code in _FEW_DIGITS:
        return (b'{"code":%d,"' % code)[:SHORT_START_BYTES]
    return b'{"code":%d,' % code if code in _SIX_DIGITS else None


def request_reader(code: int, cls: type[Header]) -> RequestReader:
    """Returns a reader of JSON requests with this code and custom fields of this struct."""
    # In the order in which Java writes the members, so that they are found without a search. The last three
    # are no members of a header: they have one possible value, or get theirs below, whatever the peer sent.
    members: list[Any] = [
        ("code", Int32, 0),
        ("typed", cls, msgspec.field(name="extFields")),
        ("flag", Int32, 0),
        ("language", str | None, "JAVA"),
        ("opaque", Int32),
        ("remark", str | None, None),
        ("said_type", Any, msgspec.field(name="serializeTypeCurrentRPC", default=None)),
        ("version", Int32, 0),
        ("serialize_type", Literal[0], JSON),
        ("body", Any, None),
        ("received_fields", Any, None),
    ]
    kind = msgspec.defstruct(
        f"Command{code}", members, bases=(Command,), gc=False, kw_only=True, forbid_unknown_fields=True
    )
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind, strict=False).decode

    def read(raw: bytes, body: memoryview) -> Command | None:
        try:
            command: Command = decode(raw)
        except REFUSED:
            return None
        if command.code != code or command.flag & RESPONSE_FLAG:
            return None
        if command.language not in LANGUAGE_BYTES:
            command.language = language_name(command.language)
        command.body = body
        command.received_fields = raw
        return command

    return read
