"""The options of the source `rocketmq`: which topics, from where to where, how much at once.

Rules kept here:
- They mean what the options of the same names mean to Spark's Kafka source. A batch begins at the earliest
  message unless told otherwise, a stream at the latest; a batch ends at the latest, a stream never does.
- What is given for a batch and means nothing there, or the other way round, is an error where it would change
  which messages are read, and else of no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from cometmq.client.names import check_group, check_topic
from cometmq.client.settings import ClientSettings
from cometmq.client.subscription import Expression, Sql
from cometmq.model.errors import CometError, SettingsError
from cometmq.model.names import TOOLS_GROUP
from cometmq.spark.live.offsets import EARLIEST, LATEST, Offsets, parse_offsets
from cometmq.spark.options import CONNECTION_OPTIONS, IncludeProperties, Options
from cometmq.wire.bodies.heartbeat import ALL

LIVE_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    "topic",
    "topics",
    "topicPattern",
    "group",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "driverMaxRecords",
    "failOnDataLoss",
    "tags",
    "sql",
    "includeProperties",
    "pollTimeoutMs",
)
DRIVER_RECORDS: Final = 4096
NAMELESS_GROUP: Final = TOOLS_GROUP
"""Who reads without a group of its own: every broker has this one, for tools."""


class Bound(msgspec.Struct, frozen=True):
    """Where a read begins or ends in each queue."""

    everywhere: int = EARLIEST
    """`EARLIEST` or `LATEST`, for queues of which nothing else is said."""
    offsets: Offsets | None = None
    """By queue; an offset can be `EARLIEST` or `LATEST` here, too."""
    time_ms: int | None = None
    """The first message that was stored then or later."""


class LiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a query reads."""

    settings: ClientSettings
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """Topics whose whole names match this."""
    group: str | None = None
    start: Bound
    end: Bound
    max_offsets: int | None = None
    max_bytes: int | None = None
    """Of a trigger."""
    min_partitions: int | None = None
    max_records: int | None = None
    """Of a partition."""
    driver_records: int = DRIVER_RECORDS
    """A batch of a stream that has no more messages is read by the driver."""
    fail_on_data_loss: bool = True
    expression: Expression = ALL
    include_properties: IncludeProperties = False
    poll_timeout_s: float = 120.0
    """How long to wait for a broker that went away."""

    @property
    def reading_group(self) -> str:
        """The group that reads are done under."""
        return self.group or NAMELESS_GROUP


def live_options(given: Mapping[str, str], *, streaming: bool) -> LiveOptions:
    """The options of a batch, or of a stream."""
    options = Options(given, LIVE_OPTIONS, "the source rocketmq")
    settings = options.client_settings()
    topics, pattern = _topics(options)
    group = options.text("group")
    if group is not None:
        _check(check_group, group)
    if streaming and options.only_one_of("endingOffsets", "endingTimestamp"):
        raise SettingsError("a stream has no end; leave endingOffsets and endingTimestamp away")
    start = _bound(options, "starting", LATEST if streaming else EARLIEST)
    if not streaming and start == Bound(LATEST):
        raise SettingsError("a batch that starts at the latest offsets is empty; use earliest, or a stream")
    end = _bound(options, "ending", LATEST)
    driver_records = options.number("driverMaxRecords", least=0)
    if end == Bound(EARLIEST):
        raise SettingsError("a batch that ends at the earliest offsets is empty; use latest")
    return LiveOptions(
        settings=settings,
        topics=topics,
        pattern=pattern,
        group=group,
        start=start,
        end=end,
        max_offsets=options.number("maxOffsetsPerTrigger"),
        max_bytes=options.number("maxBytesPerTrigger"),
        min_partitions=options.number("minPartitions"),
        max_records=options.number("maxRecordsPerPartition"),
        driver_records=DRIVER_RECORDS if driver_records is None else driver_records,
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        expression=_expression(options),
        include_properties=options.included_properties("includeProperties"),
        poll_timeout_s=(options.number("pollTimeoutMs") or 120_000) / 1000,
    )


def _topics(options: Options) -> tuple[tuple[str, ...], str | None]:
    given = options.only_one_of("topic", "topics", "topicPattern")
    if given is None:
        raise SettingsError("nothing says what to read; give topic, topics ('a,b') or topicPattern")
    pattern = options.text("topicPattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SettingsError(f"topicPattern {pattern!r} is no regular expression: {error}") from None
        return (), pattern
    names = (options.text(given) or "").split(",") if given == "topics" else [options.text("topic") or ""]
    topics = tuple(sorted({name.strip() for name in names if name.strip()}))
    for topic in topics:
        _check(check_topic, topic)
    return topics, None


def _bound(options: Options, which: str, default: int) -> Bound:
    by_offsets, by_time = f"{which}Offsets", f"{which}Timestamp"
    given = options.only_one_of(by_offsets, by_time)
    if given == by_time:
        return Bound(LATEST, time_ms=options.time_ms(by_time))
    text = options.text(by_offsets)
    named = {"earliest": EARLIEST, "latest": LATEST}
    if text is None or text.lower() in named:
        return Bound(default if text is None else named[text.lower()])
    everywhere = EARLIEST if which == "starting" else LATEST
    return Bound(everywhere, offsets=parse_offsets(by_offsets, text))


def _expression(options: Options) -> Expression:
    if options.only_one_of("tags", "sql") == "sql":
        return Sql(options.text("sql") or "")
    return options.text("tags") or ALL


def _check(check: object, name: str) -> None:
    assert callable(check)
    try:
        check(name)
    except CometError as error:
        raise SettingsError(error.message) from None
