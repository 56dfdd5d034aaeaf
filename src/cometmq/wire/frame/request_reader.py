"""Requests in one pass: the header and the declared custom fields in it, read by one decoder a request code.

Every known client begins a JSON header with the code. Where the code is known by its first bytes, and so the
struct of its custom fields, one decoder makes the whole command, instead of one for the header and another
for the fields in it.

Rules kept here: what is read this way is what `decode_command` and `Command.header` read. A header that this
decoder refuses, or that turns out to have another code after all, is left to them.
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
"""How many first bytes of a header tell a code: of one with two or three digits, and of one with six."""

_FEW_DIGITS: Final = range(10, 1_000)
_SIX_DIGITS: Final = range(100_000, 1_000_000)

RequestReader = Callable[[bytes, memoryview], Command | None]
"""Makes a command of a header and a body; None if it is one for `decode_command`."""


def start_of_request(code: int) -> bytes | None:
    """How a JSON header with this code begins if nothing odd is in it; None if that cannot be told."""
    if code in _FEW_DIGITS:
        return (b'{"code":%d,"' % code)[:SHORT_START_BYTES]
    return b'{"code":%d,' % code if code in _SIX_DIGITS else None


def request_reader(code: int, cls: type[Header]) -> RequestReader:
    """What reads JSON requests with this code, whose custom fields are declared by this struct."""
    # What stands for no member of a header has one possible value, or is given one below, whatever the peer
    # may have said there.
    # The others are in the order in which Java writes them, in which they are found without a search.
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
