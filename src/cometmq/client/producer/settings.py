"""Producer settings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from cometmq.client.settings import ClientOptions, ClientSettings, check_at_least, check_at_most
from cometmq.model.errors import SettingsError
from cometmq.model.names import DEFAULT_TOPIC, TRACE_TOPIC
from cometmq.model.sysflag import CompressionType
from cometmq.wire.codes import ResponseCode
from cometmq.wire.record.compression import DEFAULT_LEVEL

KIB: Final = 1024
MIB: Final = 1024 * KIB

CompressionName = Literal["ZLIB", "LZ4", "ZSTD"]
"""How bodies are compressed."""

RETRY_RESPONSE_CODES: Final = frozenset(
    int(code)
    for code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)


class ProducerSettings(ClientSettings, frozen=True, kw_only=True):
    """The settings of a producer; RocketMQ's names in Python spelling, times in milliseconds."""

    send_timeout_ms: int = 3_000
    """Covers the whole send: finding the route, waiting for room, connecting, and all attempts."""
    max_timeout_per_try_ms: int | None = None
    """The limit of one attempt while another one is left; None is all the time that remains."""
    retry_times: int = 2
    """Attempts after the first one."""
    retry_response_codes: Collection[int] = RETRY_RESPONSE_CODES
    """Response codes after which another broker is tried."""
    retry_when_not_stored_ok: bool = False
    """Also try another broker if one stored the message less safely than it should."""
    create_topic_key: str = DEFAULT_TOPIC
    """The topic whose settings a broker copies when it creates a missing topic."""
    default_topic_queue_nums: int = 4
    """A missing topic is created with at most this many queues per broker."""
    max_message_size: int = 4 * MIB
    """A larger body is refused; batches are split below it."""
    compress_body_over_bytes: int = 4 * KIB
    """Bodies of at least this many bytes are compressed; batches are not."""
    compression: CompressionName = "ZLIB"
    """The compression: `"ZLIB"`, `"LZ4"` or `"ZSTD"`; consumers of RocketMQ 4 only read ZLIB."""
    compression_level: int = DEFAULT_LEVEL
    """How hard to compress: up to 9, with ZSTD up to 22; LZ4 has no levels."""
    send_latency_fault_enable: bool = False
    """Avoid brokers for a while that were slow or failed."""
    start_detector_enable: bool = False
    """Probe whether a broker that failed can be reached again; needs `send_latency_fault_enable`."""
    detect_timeout_ms: int = 200
    """How long a probe waits for an answer."""
    detect_interval_ms: int = 2_000
    """How often brokers that failed are probed."""
    max_in_flight_messages: int = 10_000
    """With this many messages in flight, further sends wait for room."""
    max_in_flight_bytes: int = 100 * MIB
    """With this many bytes in flight, further sends wait for room."""
    max_pending_requests: int = 10_000
    """With this many requests waiting for replies, a further one is refused."""
    enable_trace: bool = False
    """Record message traces, for `cometmq message trace` and others to read."""
    trace_topic: str = TRACE_TOPIC
    """The topic of the traces."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "send_timeout_ms", "default_topic_queue_nums", "max_message_size")
        check_at_least(self, 1, "detect_timeout_ms", "detect_interval_ms")
        check_at_least(self, 1, "max_in_flight_messages", "max_in_flight_bytes", "max_pending_requests")
        check_at_least(self, 0, "retry_times", "compress_body_over_bytes")
        if self.max_timeout_per_try_ms is not None:
            check_at_least(self, 1, "max_timeout_per_try_ms")
        if self.compression not in CompressionType.__members__:
            raise SettingsError(f"compression is {self.compression!r}; use 'ZLIB', 'LZ4' or 'ZSTD'")
        check_at_least(self, 0, "compression_level")
        check_at_most(self, 22 if self.compression == "ZSTD" else 9, "compression_level")
        msgspec.structs.force_setattr(self, "retry_response_codes", frozenset(self.retry_response_codes))


class ProducerOptions(ClientOptions, total=False):
    """`ProducerSettings` as keywords, for type checkers."""

    send_timeout_ms: int
    max_timeout_per_try_ms: int | None
    retry_times: int
    retry_response_codes: Collection[int]
    retry_when_not_stored_ok: bool
    create_topic_key: str
    default_topic_queue_nums: int
    max_message_size: int
    compress_body_over_bytes: int
    compression: CompressionName
    compression_level: int
    send_latency_fault_enable: bool
    start_detector_enable: bool
    detect_timeout_ms: int
    detect_interval_ms: int
    max_in_flight_messages: int
    max_in_flight_bytes: int
    max_pending_requests: int
    enable_trace: bool
    trace_topic: str
