"""Options of the sink `rocketmq`, checked on the driver before any task runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from cometmq.client.names import check_group, check_topic
from cometmq.client.producer.settings import ProducerSettings
from cometmq.client.settings import ClientSettings
from cometmq.model.errors import SettingsError
from cometmq.spark.options import CONNECTION_OPTIONS, Options, scalar_options

_MAX_ID: Final = 128


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of a sink; scalar fields are Spark options."""

    settings: ClientSettings
    topic: str | None = None
    """For rows without a topic."""
    group: str = msgspec.field(default="cometmq-spark-sink", name="producerGroup")
    exactly_once: bool = False
    once_id: str | None = msgspec.field(default=None, name="exactlyOnceId")
    """Names a batch write: written again with the same id, its rows are not stored again."""
    send_timeout_ms: int = 10_000
    """Of one request."""
    retry_timeout_ms: Annotated[int, msgspec.Meta(ge=0)] = 60_000
    """How long a request is retried while a broker is away or busy."""
    max_message_size: int = 4 * 1024 * 1024
    unique_keys: bool = True
    """Whether messages get a unique key for the index; without it brokers do less work."""
    max_rows_per_second: int | None = None
    """Per task."""

    def producer_settings(self) -> ProducerSettings:
        own = {name: getattr(self.settings, name) for name in ClientSettings.__struct_fields__}
        return ProducerSettings(
            **own, send_timeout_ms=self.send_timeout_ms, max_message_size=self.max_message_size
        )


SINK_OPTIONS: Final = (*CONNECTION_OPTIONS, *scalar_options(SinkOptions))


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    options = Options(given, SINK_OPTIONS, "the sink rocketmq")
    scalars = options.scalars(SinkOptions)
    if "topic" in scalars:
        check_topic(scalars["topic"])
    if "group" in scalars:
        check_group(scalars["group"])
    if "once_id" in scalars:
        exactly_once = scalars.get("exactly_once", False)
        _check_once_id(scalars["once_id"], exactly_once=exactly_once, streaming=streaming)
    return SinkOptions(settings=options.client_settings(), **scalars)


def _check_once_id(once_id: str, *, exactly_once: bool, streaming: bool) -> None:
    if streaming:
        raise SettingsError("exactlyOnceId is for batch writes; a streaming query has an id of its own")
    if not exactly_once:
        raise SettingsError("exactlyOnceId has no effect without exactlyOnce=true; give it, too")
    if len(once_id) > _MAX_ID or not once_id.isprintable():
        raise SettingsError(f"exactlyOnceId has at most {_MAX_ID} printable characters")
