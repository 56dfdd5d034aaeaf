"""Makes bad frames of good ones, each from its number alone, so that any of them can be made again.

`sound` frames are framed correctly, whatever is in them: a server has to answer each and keep the connection.
`broken` ones lie about their lengths or are cut.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final

from tests.fuzz.corpus import Parts, broker_requests, namesrv_requests, recorded_frames

_INTERESTING: Final = [
    b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff", b"\xc3", b"\xed\xa0\x80",
    b'"', b"\\", b"\\u", b"\\ud800", b"{", b"}", b"[", b"]", b",", b":", b"'", b"null", b"1e999", b"-", b"/*",
    b"$ref", b'{"$ref":"$"}', b"opaque", b'"flag":', b"\r\n", b"=",
]  # fmt: skip
_VALUES: Final[list[Any]] = [
    None, True, False, 0, -1, 1, 2, 3, 2**31 - 1, 2**31, -(2**31), 2**63, 2**64, 10**30, 1.0, 1.5, 1e300,
    -0.0, "", "0", "1", "-1", "007", "+7", "1.0", "1e2", "null", "true", "2147483648", "9" * 50, " ", "\x00",
    "\ud800", "é€😀", "x" * 300, "../../etc/passwd", "GO", "go", "KLINGON", [], [1], {}, {"a": 1},
    {"$ref": "$.code"}, [[[[[[]]]]]],
]  # fmt: skip
_MEMBERS: Final = ["code", "opaque", "flag", "version", "language", "remark", "extFields", "other", ""]
_MAX_BODY_BYTES: Final = 200_000
_MAX_NESTING: Final = 400


class Mutator:
    """A source of frames; the same seed and number give the same bytes."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._served = namesrv_requests()
        self._recorded = recorded_frames() + broker_requests()
        self._edits: list[Callable[[random.Random, Parts], Parts]] = [
            self._edit_bytes, self._edit_bytes, self._edit_bytes,
            self._edit_json, self._edit_json, self._edit_json, self._edit_json,
            self._speak_dialect, self._edit_lengths, self._change_kind, self._splice, self._nest, self._grow,
        ]  # fmt: skip

    def sound(self, number: int) -> bytes:
        """A frame whose framing holds."""
        choice = random.Random(f"{self._seed}:{number}")
        parts = self._pick(choice)
        for _ in range(choice.choice((0, 1, 1, 1, 2, 2, 3, 5))):
            parts = choice.choice(self._edits)(choice, parts)
        return parts.packed()

    def broken(self, number: int) -> bytes:
        """Bytes whose framing is wrong, or ends too early."""
        choice = random.Random(f"{self._seed}:{number}:broken")
        data = bytearray(self.sound(number))
        kind = choice.randrange(5)
        if kind == 0:
            data[0:4] = choice.choice((0, 1, 3, 2**24, 2**24 + 1, 2**31, 2**32 - 1)).to_bytes(4, "big")
        elif kind == 1:
            data[5:8] = choice.randrange(2**24).to_bytes(3, "big")
        elif kind == 2:
            del data[choice.randrange(len(data)) :]
        elif kind == 3:
            data[0:4] = choice.randrange(len(data) + 50).to_bytes(4, "big")
        else:
            data = bytearray(choice.randbytes(choice.randrange(1, 200)))
        return bytes(data)

    def _pick(self, choice: random.Random) -> Parts:
        return choice.choice(self._served if choice.random() < 0.6 else self._recorded)

    # Edits of a frame that keep its framing.

    def _edit_bytes(self, choice: random.Random, parts: Parts) -> Parts:
        """Flip, set, insert, delete or repeat bytes, in the header or in the body."""
        kind, header, body = parts
        if choice.random() < 0.6 or not body:
            return Parts(kind, _bent(choice, header), body)
        return Parts(kind, header, _bent(choice, body))

    def _edit_json(self, choice: random.Random, parts: Parts) -> Parts:
        """Change a member somewhere in the header or in the body, and leave the rest good JSON."""
        kind, header, body = parts
        in_body = bool(body) and choice.random() < 0.4
        data = body if in_body else header
        if data.count(b"[") + data.count(b"{") > _MAX_NESTING:  # for the sake of our own reader
            return self._edit_bytes(choice, parts)
        try:
            value = json.loads(data)
        except ValueError:
            return self._edit_bytes(choice, parts)
        text = json.dumps(_with_changed_member(choice, value), ensure_ascii=choice.random() < 0.5)
        data = text.encode(errors="surrogatepass")
        return Parts(kind, header, data) if in_body else Parts(kind, data, body)

    def _speak_dialect(self, choice: random.Random, parts: Parts) -> Parts:
        """Spell JSON as only Java reads it."""
        kind, header, body = parts
        in_body = bool(body) and choice.random() < 0.4
        data = body if in_body else header
        for old, new in choice.sample(
            [
                (b'"', b"'"),
                (b"}", b",}"),
                (b'"code"', b"CODE"),
                (b":", b" : "),
                (b'"0"', b"0"),
                (b"{", b"/**/{"),
            ],
            2,
        ):
            data = data.replace(old, new, choice.choice((1, 1000)))
        return Parts(kind, header, data) if in_body else Parts(kind, data, body)

    def _edit_lengths(self, choice: random.Random, parts: Parts) -> Parts:
        """Lie about a length inside a binary header."""
        header = bytearray(parts.header)
        if len(header) < 21:
            return self._edit_bytes(choice, parts)
        place = choice.choice((13, 17, 17, 21, choice.randrange(len(header) - 4)))
        number = choice.choice((0, 1, -1, 2**15, 2**31 - 1, -(2**31), len(header), len(header) - 21, 300))
        header[place : place + 4] = number.to_bytes(4, "big", signed=True)
        return parts._replace(header=bytes(header))

    def _change_kind(self, choice: random.Random, parts: Parts) -> Parts:
        return parts._replace(kind=choice.choice((0, 0, 1, 1, 2, 127, 255)))

    def _splice(self, choice: random.Random, parts: Parts) -> Parts:
        """Put together what does not belong together."""
        other = self._pick(choice)
        if choice.random() < 0.5:
            return parts._replace(body=other.body)
        cut, other_cut = choice.randrange(len(parts.header) + 1), choice.randrange(len(other.header) + 1)
        return parts._replace(header=parts.header[:cut] + other.header[other_cut:])

    def _nest(self, choice: random.Random, parts: Parts) -> Parts:
        depth = choice.choice((5, 70, 500, 985, 990, 1000, 5000))
        opening, closing = choice.choice(((b"[", b"]"), (b'{"a":', b"}")))
        value = opening * depth + (closing * depth if choice.random() < 0.5 else b"")
        if parts.body and choice.random() < 0.3:
            return parts._replace(body=parts.body.replace(b"{}", value, 1))
        return parts._replace(header=parts.header.replace(b'"', b'"x":' + value + b',"', 1))

    def _grow(self, choice: random.Random, parts: Parts) -> Parts:
        if choice.random() < 0.9:
            return self._edit_bytes(choice, parts)
        body = parts.body or b"[1,2,3],"
        return parts._replace(
            body=(body * (_MAX_BODY_BYTES // len(body)))[: choice.randrange(_MAX_BODY_BYTES)]
        )


def _bent(choice: random.Random, data: bytes) -> bytes:
    if not data:
        return choice.choice(_INTERESTING)
    place = choice.randrange(len(data))
    end = place + choice.choice((1, 1, 2, 4, 16))
    kind = choice.randrange(6)
    if kind == 0:
        return data[:place] + bytes([data[place] ^ 1 << choice.randrange(8)]) + data[place + 1 :]
    if kind == 1:
        return data[:place] + choice.randbytes(len(data[place:end])) + data[end:]
    if kind == 2:
        return data[:place] + choice.choice(_INTERESTING) + data[place:]
    if kind == 3:
        return data[:place] + data[end:]
    if kind == 4:
        return data[:end] + data[place:]
    return data[:place]


def _with_changed_member(choice: random.Random, value: Any) -> Any:
    """A copy with one member, at whatever depth, set, removed, renamed or added."""
    if isinstance(value, list):
        if value and choice.random() < 0.8:
            place = choice.randrange(len(value))
            return [*value[:place], _with_changed_member(choice, value[place]), *value[place + 1 :]]
        return [*value, choice.choice(_VALUES)]
    if not isinstance(value, dict):
        return choice.choice(_VALUES)
    members = dict(value)
    name = choice.choice(list(members)) if members and choice.random() < 0.85 else choice.choice(_MEMBERS)
    kind = choice.randrange(8)
    if kind < 3 and isinstance(members.get(name), dict | list):
        members[name] = _with_changed_member(choice, members[name])
    elif kind < 6:
        members[name] = choice.choice(_VALUES)
    elif kind == 6:
        members.pop(name, None)
    else:
        members[choice.choice((name.upper(), name + "x", f"_{name}"))] = members.pop(name, 1)
    return members
