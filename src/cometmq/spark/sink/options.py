"""The options of the sink `rocketmq`: where to, and how surely.

Rules kept here: what cannot work is refused on the driver, before any task runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from cometmq.client.names import check_group, check_topic
from cometmq.client.producer.settings import ProducerSettings
from cometmq.client.settings import ClientSettings
from cometmq.model.errors import SettingsError
from cometmq.spark.options import CONNECTION_OPTIONS, Options

SINK_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    "topic",
    "producerGroup",
    "exactlyOnce",
    "exactlyOnceId",
    "sendTimeoutMs",
    "retryTimeoutMs",
    "maxMessageSize",
    "uniqueKeys",
    "maxRowsPerSecond",
)

DEFAULT_GROUP: Final = "cometmq-spark-sink"
DEFAULT_SEND_TIMEOUT_MS: Final = 10_000
DEFAULT_RETRY_TIMEOUT_MS: Final = 60_000
DEFAULT_MESSAGE_SIZE: Final = 4 * 1024 * 1024
_MAX_ID: Final = 128


class SinkOptions(msgspec.Struct, frozen=True):
    """What a sink was told."""

    settings: ClientSettings
    topic: str | None
    """For rows that name none."""
    group: str
    exactly_once: bool
    once_id: str | None
    """The name of a batch write: written again under the same name, its rows are not stored again."""
    send_timeout_ms: int
    """How long a broker may take for one request."""
    retry_timeout_ms: int
    """How long one request is tried again when a broker is away or busy."""
    max_message_size: int
    unique_keys: bool
    """Whether each message has a unique key, by which it is found in the index; without, brokers do less."""
    max_rows_per_second: int | None
    """Of one task."""

    def producer_settings(self) -> ProducerSettings:
        own = {name: getattr(self.settings, name) for name in ClientSettings.__struct_fields__}
        return ProducerSettings(
            **own, send_timeout_ms=self.send_timeout_ms, max_message_size=self.max_message_size
        )


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read and check the options of a sink."""
    options = Options(given, SINK_OPTIONS, "the sink rocketmq")
    topic = options.text("topic")
    if topic is not None:
        check_topic(topic)
    group = options.text("producerGroup") or DEFAULT_GROUP
    check_group(group)
    exactly_once = options.flag("exactlyOnce", default=False)
    once_id = options.text("exactlyOnceId")
    if once_id is not None:
        _check_once_id(once_id, exactly_once=exactly_once, streaming=streaming)
    retry_timeout_ms = options.number("retryTimeoutMs", least=0)
    return SinkOptions(
        options.client_settings(),
        topic,
        group,
        exactly_once,
        once_id,
        options.number("sendTimeoutMs") or DEFAULT_SEND_TIMEOUT_MS,
        DEFAULT_RETRY_TIMEOUT_MS if retry_timeout_ms is None else retry_timeout_ms,
        options.number("maxMessageSize") or DEFAULT_MESSAGE_SIZE,
        options.flag("uniqueKeys", default=True),
        options.number("maxRowsPerSecond"),
    )


def _check_once_id(once_id: str, *, exactly_once: bool, streaming: bool) -> None:
    if streaming:
        raise SettingsError("exactlyOnceId is for batch writes; a streaming query has an id of its own")
    if not exactly_once:
        raise SettingsError("exactlyOnceId has no effect without exactlyOnce=true; give it, too")
    if len(once_id) > _MAX_ID or not once_id.isprintable():
        raise SettingsError(f"exactlyOnceId has at most {_MAX_ID} printable characters")
