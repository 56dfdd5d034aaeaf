"""Every frame that a real Apache RocketMQ 5.3.3 wrote, read and written again."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from cometmq.wire.frame.command import Command, decode_command, encode_command
from cometmq.wire.frame.framing import JSON, ROCKETMQ, Frame, FrameSplitter

VECTORS = [
    json.loads(line) for line in Path("tests/data/frames.jsonl").read_text(encoding="utf-8").splitlines()
]
IDS = [f"{vector['id']}-{vector['request']}-{vector['kind']}" for vector in VECTORS]
every_vector = pytest.mark.parametrize("vector", VECTORS, ids=IDS)


def split_whole(data: bytes) -> Frame:
    splitter = FrameSplitter()
    splitter.feed(data)
    frame = splitter.next_frame()
    assert frame is not None
    assert splitter.next_frame() is None
    assert splitter.buffered_bytes == 0
    return frame


def as_decoded(command: Command) -> dict[str, Any]:
    """A command in the form in which the vectors state what Java read."""
    return {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "remark": command.remark,
        "extFields": None if command.received_fields is None else command.fields(),
        "serialize": "JSON" if command.serialize_type == JSON else "ROCKETMQ",
        "bodyLength": len(command.body),
    }


def encode_again(command: Command) -> bytes:
    return encode_command(
        command.code,
        command.opaque,
        command.flag,
        None if command.received_fields is None else command.fields(),
        body=command.body,
        remark=command.remark,
        version=command.version,
        language=command.language,
        serialize_type=command.serialize_type,
    )


def test_all_vectors_are_here() -> None:
    assert len(VECTORS) == 198
    assert {base64.b64decode(vector["frame"])[4] for vector in VECTORS} == {JSON, ROCKETMQ}


@every_vector
def test_a_frame_decodes_to_what_java_decoded(vector: dict[str, Any]) -> None:
    command = decode_command(split_whole(base64.b64decode(vector["frame"])))
    assert as_decoded(command) == vector["decoded"]


@every_vector
def test_a_frame_encodes_back(vector: dict[str, Any]) -> None:
    """A binary header gives the same bytes; a JSON one, whose order of members is free, the same meaning."""
    data = base64.b64decode(vector["frame"])
    again = encode_again(decode_command(split_whole(data)))
    if data[4] == ROCKETMQ:
        assert again == data
    command = decode_command(split_whole(again))
    assert as_decoded(command) == vector["decoded"]


def test_all_vectors_in_one_stream_split_in_any_chunking() -> None:
    stream = b"".join(base64.b64decode(vector["frame"]) for vector in VECTORS)
    for chunk_bytes in (1, 3, 7, 100, 1460, 4096, 65536, len(stream)):
        splitter = FrameSplitter()
        found: list[tuple[int, bytes, bytes]] = []
        for start in range(0, len(stream), chunk_bytes):
            splitter.feed(stream[start : start + chunk_bytes])
            while (frame := splitter.next_frame()) is not None:
                found.append((frame.serialize_type, bytes(frame.header), bytes(frame.body)))
        assert splitter.buffered_bytes == 0
        rebuilt = [
            (4 + len(header) + len(body)).to_bytes(4, "big")
            + bytes([kind])
            + len(header).to_bytes(3, "big")
            + header
            + body
            for kind, header, body in found
        ]
        assert b"".join(rebuilt) == stream
        assert len(rebuilt) == len(VECTORS)
