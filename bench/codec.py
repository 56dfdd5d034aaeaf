"""Codec on one core: frames and records a second, without sockets and files.

Rules kept here:

- The input is what a broker sees most: sends with 128-byte bodies and the properties that a Java client
  sets, read in chunks of 256 KiB as from a busy socket, with frames cut at the edges.
- A step decodes all that a handler needs, and its result is checked before it is timed.
- The best of several repeats counts: slower ones were disturbed by other processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench.errors import BenchmarkError
from bench.load.frames import binary_request, json_request
from bench.report.figures import Figure, Section
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import (
    decode_command,
    encode_request_head,
    encode_response_head,
)
from cometmq.wire.frame.framing import Frame, FrameSplitter
from cometmq.wire.frame.request_reader import request_reader
from cometmq.wire.headers.send import SendMessageRequestV2, SendMessageResponse
from cometmq.wire.record.codec import Record, decode_record, encode_record

COUNT = 10_000
READ_BYTES = 256 * 1024
BODY = bytes(range(128))
ROUTE_BODY = bytes(1_700)

_UNIQUE_KEY = "0A0000010000000000000000000000021CFA5FFD2B2749DAFBF60000"
_PROPERTIES = f"UNIQ_KEY\u0001{_UNIQUE_KEY}\u0002WAIT\u0001true\u0002"
_SEND_FIELDS: Mapping[str, str] = {
    "a": "order-service",
    "b": "orders-of-region-0001",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1794730288118",
    "h": "0",
    "i": _PROPERTIES,
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}

Step = Callable[[], int]
"""Does the same work each time and says how many frames or records that was."""


@dataclass(frozen=True, slots=True)
class Effort:
    """For how long each step is repeated."""

    seconds_per_step: float


FULL = Effort(seconds_per_step=2.0)
QUICK = Effort(seconds_per_step=0.5)


def run(effort: Effort, say: Callable[[str], None]) -> Section:
    """Time every step."""
    section = Section("Codec", notes=["one core, in-process, best of several repeats; 128-byte bodies"])
    for name, step in _steps().items():
        rate = _best_rate(name, step, effort.seconds_per_step)
        say(f"{name}: {rate:,.0f}/s")
        section.figures.append(Figure(name, "a second", [rate]))
    return section


def _best_rate(name: str, step: Step, seconds: float) -> float:
    if step() != COUNT:
        raise BenchmarkError(f"{name}: {step()} of {COUNT} came through")
    best = 0.0
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        done = step()
        best = max(best, done / (time.perf_counter() - begun))
    return best


def _steps() -> dict[str, Step]:
    json_sends = [json_request(RequestCode.SEND_MESSAGE_V2, _SEND_FIELDS, BODY, n) for n in range(COUNT)]
    binary_sends = [binary_request(RequestCode.SEND_MESSAGE_V2, _SEND_FIELDS, BODY, n) for n in range(COUNT)]
    look_ups = [
        json_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}, b"", n) for n in range(COUNT)
    ]
    return {
        "split sends": _splitting(json_sends),
        "split and decode sends, JSON headers": _decoding_sends_in_one_pass(json_sends),
        "split and decode sends, JSON headers, the general way": _decoding_sends(json_sends),
        "split and decode sends, binary headers": _decoding_sends(binary_sends),
        "split and decode route look-ups": _decoding_commands(look_ups),
        "encode sends": _encoding_sends(),
        "encode answers of sends": _encoding_send_answers(),
        "encode answers of route look-ups": _encoding_route_answers(),
        "encode records": _encoding_records(),
        "decode records": _decoding_records(),
    }


def _reads(frames: list[bytes]) -> list[bytes]:
    stream = b"".join(frames)
    return [stream[start : start + READ_BYTES] for start in range(0, len(stream), READ_BYTES)]


def _frames(reads: list[bytes]) -> Iterator[Frame]:
    splitter = FrameSplitter()
    for read in reads:
        splitter.feed(read)
        while (frame := splitter.next_frame()) is not None:
            yield frame


def _splitting(frames: list[bytes]) -> Step:
    reads = _reads(frames)
    return lambda: sum(1 for frame in _frames(reads) if len(frame.body) == len(BODY))


def _decoding_commands(frames: list[bytes]) -> Step:
    reads = _reads(frames)
    return lambda: sum(1 for frame in _frames(reads) if decode_command(frame).opaque >= 0)


def _decoding_sends(frames: list[bytes]) -> Step:
    reads = _reads(frames)

    def step() -> int:
        decoded = 0
        for frame in _frames(reads):
            send = decode_command(frame).header(SendMessageRequestV2)
            decoded += send.queue_id == 3 and send.properties == _PROPERTIES
        return decoded

    return step


def _decoding_sends_in_one_pass(frames: list[bytes]) -> Step:
    """As a connection does it with the requests that a handler has declared."""
    reads = _reads(frames)
    read_request = request_reader(RequestCode.SEND_MESSAGE_V2, SendMessageRequestV2)

    def step() -> int:
        decoded = 0
        splitter = FrameSplitter()
        for read in reads:
            splitter.feed(read)
            while (parts := splitter.next_parts()) is not None:
                command = read_request(parts[1], parts[2])
                if command is not None:
                    send = command.header(SendMessageRequestV2)
                    decoded += send.queue_id == 3 and send.properties == _PROPERTIES
        return decoded

    return step


def _encoding_sends() -> Step:
    header = SendMessageRequestV2(
        producer_group="order-service",
        topic="orders-of-region-0001",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1794730288118,
        flag=0,
        properties=_PROPERTIES,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name="broker-a",
    )

    def step() -> int:
        for opaque in range(COUNT):
            encode_request_head(RequestCode.SEND_MESSAGE_V2, opaque, 0, header, len(BODY))
        return COUNT

    return step


def _encoding_send_answers() -> Step:
    def step() -> int:
        for opaque in range(COUNT):
            answer = SendMessageResponse(
                msg_id="7F00000200002A9F0000000000000000",
                queue_id=3,
                queue_offset=opaque,
                transaction_id=_UNIQUE_KEY,
                msg_region="DefaultRegion",
                trace_on=True,
            )
            encode_response_head(opaque, 0, answer)
        return COUNT

    return step


def _encoding_route_answers() -> Step:
    def step() -> int:
        for opaque in range(COUNT):
            encode_response_head(opaque, body_bytes=len(ROUTE_BODY)) + ROUTE_BODY
        return COUNT

    return step


def _record(number: int) -> Record:
    return Record(
        topic="orders-of-region-0001",
        body=BODY,
        properties_block=_PROPERTIES.encode(),
        queue_id=3,
        queue_offset=number,
        born_timestamp_ms=1794730288118,
        store_timestamp_ms=1794730288119,
    )


def _encoding_records() -> Step:
    def step() -> int:
        return sum(bool(encode_record(_record(number))) for number in range(COUNT))

    return step


def _decoding_records() -> Step:
    view = memoryview(b"".join(encode_record(_record(number)) for number in range(COUNT)))

    def step() -> int:
        offset = decoded = 0
        while offset < len(view):
            record = decode_record(view, offset)
            decoded += record.queue_offset == decoded
            offset += record.total_size
        return decoded

    return step
