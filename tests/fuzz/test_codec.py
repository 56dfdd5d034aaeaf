"""Mutated frames against the codec: it reads them, or raises one of the two errors that it may raise."""

from __future__ import annotations

import random

from cometmq.model.errors import FramingError, HeaderError
from cometmq.wire.frame.command import Command, decode_command, encode_command, salvage_flag, salvage_opaque
from cometmq.wire.frame.framing import JSON, Frame, FrameSplitter
from cometmq.wire.frame.request_reader import (
    LONG_START_BYTES,
    SHORT_START_BYTES,
    RequestReader,
    request_reader,
    start_of_request,
)
from tests.all_headers import REQUEST_HEADERS
from tests.fuzz.mutator import Mutator
from tests.fuzz.settings import FRAMES, SEED, how_to_repeat

READERS: dict[bytes, RequestReader] = {
    start: request_reader(code, cls)
    for code, cls in REQUEST_HEADERS.items()
    if (start := start_of_request(code)) is not None
}


def test_the_codec_reads_mutated_frames_or_refuses_them_properly() -> None:
    mutator = Mutator(SEED)
    read = refused = unframed = 0
    for number in range(FRAMES):
        try:
            if number % 4 == 3:
                unframed += _split(mutator.broken(number), random.Random(number))
                continue
            (frame,) = _frames(mutator.sound(number), random.Random(number))
            try:
                _read(frame)
                read += 1
            except HeaderError:
                refused += 1
        except Exception as error:
            raise AssertionError(how_to_repeat(number)) from error
    assert read > FRAMES // 5, "the mutator breaks too much to find anything behind the first check"
    assert refused > FRAMES // 50
    assert unframed > FRAMES // 50


def _frames(data: bytes, choice: random.Random) -> list[Frame]:
    splitter = FrameSplitter()
    found = []
    while data:
        size = choice.choice((1, 3, 100, 1460, len(data)))
        splitter.feed(data[:size])
        data = data[size:]
        while (frame := splitter.next_frame()) is not None:
            found.append(frame)
    assert splitter.buffered_bytes == 0
    return found


def _split(data: bytes, choice: random.Random) -> bool:
    """Whether the framing turned out to be broken."""
    splitter = FrameSplitter()
    try:
        for size in (choice.randrange(len(data) + 1), len(data)):
            splitter.feed(data[:size])
            data = data[size:]
            while (frame := splitter.next_frame()) is not None:
                try:
                    _read(frame)
                except HeaderError:
                    pass
    except FramingError:
        return True
    return False


def _read(frame: Frame) -> None:
    """Read everything that can be read in a frame; what was read survives being written again."""
    assert -(2**31) <= salvage_opaque(frame) < 2**31
    assert -(2**31) <= salvage_flag(frame) < 2**31
    command = decode_command(frame)
    assert salvage_opaque(frame) is not None
    _read_in_one_pass(frame, command)
    fields = command.fields()
    again = _written_again(command)
    assert (again.code, again.opaque, again.flag) == (command.code, command.opaque, command.flag)
    assert (again.remark or None) == (command.remark or None)
    cls = REQUEST_HEADERS.get(command.code)
    if cls is not None:
        header = command.header(cls)
        if {key: value for key, value in again.fields().items() if value} == fields:
            assert again.header(cls) == header


def _read_in_one_pass(frame: Frame, command: Command) -> None:
    """A request whose header is known by its first bytes says the same when it is read at once."""
    raw = bytes(frame.header)
    read = READERS.get(raw[:SHORT_START_BYTES]) or READERS.get(raw[:LONG_START_BYTES])
    quick = read(raw, frame.body) if read is not None and frame.serialize_type == JSON else None
    if quick is None:
        return
    for member in ("code", "opaque", "flag", "version", "language", "remark", "serialize_type", "body"):
        assert getattr(quick, member) == getattr(command, member), member
    assert quick.fields() == command.fields()
    assert quick.typed == command.header(REQUEST_HEADERS[command.code])


def _written_again(command: Command) -> Command:
    splitter = FrameSplitter()
    splitter.feed(
        encode_command(
            command.code,
            command.opaque,
            command.flag,
            command.fields() or None,
            body=command.body,
            remark=command.remark,
            version=command.version,
            language=command.language,
            serialize_type=command.serialize_type,
        )
    )
    frame = splitter.next_frame()
    assert frame is not None
    return decode_command(frame)
