"""Escaping of peers' text in the log and on terminals.

Rules kept here:
- Text of a peer is shown in one line and does nothing to a terminal: control characters, line ends, escape
  sequences, and invisible or direction-changing characters are written as escapes.
- A long text is cut, and says how much is missing.
- Every record of our loggers goes through `PeerTextFilter`; servers have it at their handlers, too, for
  records of other loggers. Tracebacks keep their lines; the messages of their exceptions are escaped.
"""

from __future__ import annotations

import logging
import re
import traceback
from types import TracebackType
from typing import Final

LONGEST: Final = 4000
"""The most characters of a message in the log."""
LOGGERS: Final = (
    "broker",
    "client",
    "metrics",
    "namesrv",
    "remoting",
    "replication",
    "spark",
    "standalone",
    "store",
)
"""Our loggers, without the `cometmq.` before each."""

_SPECIAL: Final = (
    r"\x00-\x1f\x7f-\x9f"  # controls, with those that begin escape sequences
    r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # lines, directions, not seen
    r"\ud800-\udfff\U000e0000-\U000e007f"  # halves of characters, tags
)
_find_special: Final = re.compile(f"[{_SPECIAL}]").search
_escape_special: Final = re.compile(f"[{_SPECIAL}]").sub
_escape_all_but_lines: Final = re.compile(f"(?!\n)[{_SPECIAL}]").sub
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def escaped(text: str, limit: int | None = None) -> str:
    """Returns the text on one line, with escapes, cut to `limit` characters."""
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}… ({len(text) - limit} more characters)"
    return text if _find_special(text) is None else _escape_special(_escape, text)


def escaped_lines(text: str) -> str:
    """Returns our own text with escapes, and with its lines."""
    return _escape_all_but_lines(_escape, text)


def escaped_json(document: str) -> str:
    """Returns an equal JSON document of which a terminal shows every character."""
    return _escape_all_but_lines(_escape_in_json, document)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_in_json(match: re.Match[str]) -> str:
    data = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


def escaped_traceback(exc_info: _ExcInfo) -> str:
    """Returns a traceback with the messages of its exceptions escaped."""
    lines = []
    for part in traceback.TracebackException(*exc_info).format():
        # Frames and what joins two tracebacks begin with a blank; an exception begins with its type.
        is_frame = part[:1].isspace() or part.startswith("Traceback ")
        lines.append(escaped_lines(part) if is_frame else f"{escaped(part.removesuffix(chr(10)), LONGEST)}\n")
    return "".join(lines).removesuffix("\n")


class PeerTextFilter(logging.Filter):
    """Escapes message and traceback of every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except Exception:  # a mistake of ours in the call, of which logging tells in its own way
            return True
        shown = escaped(message, LONGEST)
        if shown is not message:
            record.msg, record.args = shown, None
        if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None and not record.exc_text:
            # Formatters take the text that is there.
            record.exc_text = escaped_traceback(record.exc_info)
        return True


def escape_peer_text() -> None:
    """Add the filter to our loggers."""
    for name in LOGGERS:
        logger = logging.getLogger(f"cometmq.{name}")
        if not any(isinstance(each, PeerTextFilter) for each in logger.filters):
            logger.addFilter(PeerTextFilter())
