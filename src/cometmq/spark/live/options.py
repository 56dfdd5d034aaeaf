"""Options of the source `rocketmq`.

Rules kept here:
- Options mean the same as those of Spark's Kafka source. By default a batch reads from the earliest to the
  latest message, and a stream starts at the latest.
- An option that only applies to the other kind of query is an error if it would change which messages are
  read, and otherwise has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec

from cometmq.client.names import check_group, check_topic
from cometmq.client.settings import ClientSettings
from cometmq.client.subscription import Expression, Sql
from cometmq.model.errors import CometError, SettingsError
from cometmq.model.names import TOOLS_GROUP
from cometmq.model.queue import MessageQueue
from cometmq.spark.live.offsets import EARLIEST, LATEST, Offsets, parse_offsets, parse_queues, parse_times
from cometmq.spark.options import (
    CONNECTION_OPTIONS,
    TOPIC_OPTIONS,
    IncludeProperties,
    Options,
    scalar_options,
)
from cometmq.wire.bodies.heartbeat import ALL

NAMELESS_GROUP: Final = TOOLS_GROUP
"""Reads queries without a group; every broker has this group for tools."""


class Bound(msgspec.Struct, frozen=True):
    """The start or the end of a read in each queue."""

    everywhere: int = EARLIEST
    """`EARLIEST` or `LATEST`, for queues without an offset of their own."""
    offsets: Offsets | None = None
    """By queue; may contain `EARLIEST` and `LATEST`."""
    time_ms: int | None = None
    """The first message stored at this time or later."""
    times_ms: Offsets | None = None
    """Such times by queue."""


class LiveOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of a query; scalar fields are Spark options of the same name."""

    settings: ClientSettings
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    """Matches whole topic names."""
    assigned: frozenset[MessageQueue] | None = None
    """The only queues to read; None for all."""
    group: str | None = None
    start: Bound
    end: Bound
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    """After this time a batch of fewer messages starts."""
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    driver_max_records: Annotated[int, msgspec.Meta(ge=0)] = 4096
    """The driver itself reads batches of a stream up to this number of messages."""
    fail_on_data_loss: bool = True
    expression: Expression = ALL
    include_properties: IncludeProperties = False
    poll_timeout_ms: int = 120_000
    """How long to wait for an unavailable broker."""

    @property
    def poll_timeout_s(self) -> float:
        return self.poll_timeout_ms / 1000

    @property
    def limits(self) -> dict[str, object]:
        """The options that limit a batch of a stream."""
        return {
            "minOffsetsPerTrigger": self.min_offsets_per_trigger,
            "maxOffsetsPerTrigger": self.max_offsets_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
        }

    @property
    def reading_group(self) -> str:
        """The consumer group of pulls."""
        return self.group or NAMELESS_GROUP


_BOUND_KINDS: Final = ("Offsets", "Timestamp", "OffsetsByTimestamp")
_ENDS: Final = tuple(f"ending{kind}" for kind in _BOUND_KINDS)
_BOUNDS: Final = (*(f"starting{kind}" for kind in _BOUND_KINDS), *_ENDS)
LIVE_OPTIONS: Final = (
    *(*CONNECTION_OPTIONS, *TOPIC_OPTIONS, "assign", *_BOUNDS, "tags", "sql", "maxTriggerDelay"),
    *scalar_options(LiveOptions),
)


def live_options(
    given: Mapping[str, str], *, streaming: bool, properties_chosen: bool = False
) -> LiveOptions:
    """Read and check the options of a batch or streaming query; its schema may choose the properties."""
    options = Options(given, LIVE_OPTIONS, "the source rocketmq")
    settings = options.client_settings()
    topics, pattern = options.topics()
    assigned = None
    if options.only_one_of(*TOPIC_OPTIONS, "assign") == "assign":
        assigned = parse_queues("assign", options.text("assign") or "")
        topics = tuple(sorted({queue.topic for queue in assigned}))
    if not topics and pattern is None:
        raise SettingsError("nothing says what to read; give topic, topics ('a,b'), topicPattern or assign")
    for topic in topics:
        _check(check_topic, topic)
    scalars: dict[str, Any] = {"include_properties": "user" if properties_chosen else False}
    scalars |= options.scalars(LiveOptions)
    if "group" in scalars:
        _check(check_group, scalars["group"])
    if streaming and (end_option := options.only_one_of(*_ENDS)):
        raise SettingsError(f"a stream has no end; leave {end_option} away")
    _check_delay(options, scalars)
    start = _bound(options, "starting", LATEST if streaming else EARLIEST)
    if not streaming and start == Bound(LATEST):
        raise SettingsError("a batch that starts at the latest offsets is empty; use earliest, or a stream")
    end = _bound(options, "ending", LATEST)
    if end == Bound(EARLIEST):
        raise SettingsError("a batch that ends at the earliest offsets is empty; use latest")
    return LiveOptions(
        settings=settings,
        topics=topics,
        assigned=assigned,
        start=start,
        end=end,
        expression=_expression(options),
        **scalars,
    )


def _bound(options: Options, which: str, default: int) -> Bound:
    by_offsets, by_time, by_times = (f"{which}{kind}" for kind in _BOUND_KINDS)
    given = options.only_one_of(by_offsets, by_time, by_times)
    if given == by_time:
        return Bound(LATEST, time_ms=options.time_ms(by_time))
    if given == by_times:
        times = parse_times(by_times, options.text(by_times) or "")
        return Bound(EARLIEST if which == "starting" else LATEST, times_ms=times)
    text = options.text(by_offsets)
    named = {"earliest": EARLIEST, "latest": LATEST}
    if text is None or text.lower() in named:
        return Bound(default if text is None else named[text.lower()])
    everywhere = EARLIEST if which == "starting" else LATEST
    return Bound(everywhere, offsets=parse_offsets(by_offsets, text))


def _check_delay(options: Options, scalars: dict[str, Any]) -> None:
    delay_ms = options.duration_ms("maxTriggerDelay")
    least, most = scalars.get("min_offsets_per_trigger"), scalars.get("max_offsets_per_trigger")
    if least is not None and most is not None and least > most:
        raise SettingsError(f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger ({most})")
    if delay_ms is not None:
        if least is None:
            raise SettingsError("maxTriggerDelay has no effect without minOffsetsPerTrigger; give it, too")
        scalars["max_trigger_delay_s"] = delay_ms / 1000


def _expression(options: Options) -> Expression:
    if options.only_one_of("tags", "sql") == "sql":
        return Sql(options.text("sql") or "")
    return options.text("tags") or ALL


def _check(check: Callable[[str], object], name: str) -> None:
    try:
        check(name)
    except CometError as error:
        raise SettingsError(error.message) from None
