"""Options of the source `rocketmq`.

Rules kept here:
- Options mean the same as those of Spark's Kafka source. By default a batch reads from the earliest to the
  latest message, and a stream starts at the latest.
- An option that only applies to the other kind of query is an error if it would change which messages are
  read, and otherwise has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec

from cometmq.client.names import check_group, check_topic
from cometmq.client.settings import ClientSettings
from cometmq.client.subscription import Expression, Sql
from cometmq.model.errors import CometError, SettingsError
from cometmq.model.names import TOOLS_GROUP
from cometmq.spark.live.offsets import EARLIEST, LATEST, Offsets, parse_offsets
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


class LiveOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of a query; scalar fields are Spark options of the same name."""

    settings: ClientSettings
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    """Matches whole topic names."""
    group: str | None = None
    start: Bound
    end: Bound
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
    def reading_group(self) -> str:
        """The consumer group of pulls."""
        return self.group or NAMELESS_GROUP


_BOUNDS: Final = ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp")
LIVE_OPTIONS: Final = (
    *(*CONNECTION_OPTIONS, *TOPIC_OPTIONS, *_BOUNDS, "tags", "sql"),
    *scalar_options(LiveOptions),
)


def live_options(given: Mapping[str, str], *, streaming: bool) -> LiveOptions:
    """Read and check the options of a batch or streaming query."""
    options = Options(given, LIVE_OPTIONS, "the source rocketmq")
    settings = options.client_settings()
    topics, pattern = options.topics()
    if not topics and pattern is None:
        raise SettingsError("nothing says what to read; give topic, topics ('a,b') or topicPattern")
    for topic in topics:
        _check(check_topic, topic)
    scalars = options.scalars(LiveOptions)
    if "group" in scalars:
        _check(check_group, scalars["group"])
    if streaming and options.only_one_of("endingOffsets", "endingTimestamp"):
        raise SettingsError("a stream has no end; leave endingOffsets and endingTimestamp away")
    start = _bound(options, "starting", LATEST if streaming else EARLIEST)
    if not streaming and start == Bound(LATEST):
        raise SettingsError("a batch that starts at the latest offsets is empty; use earliest, or a stream")
    end = _bound(options, "ending", LATEST)
    if end == Bound(EARLIEST):
        raise SettingsError("a batch that ends at the earliest offsets is empty; use latest")
    return LiveOptions(
        settings=settings, topics=topics, start=start, end=end, expression=_expression(options), **scalars
    )


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


def _check(check: Callable[[str], object], name: str) -> None:
    try:
        check(name)
    except CometError as error:
        raise SettingsError(error.message) from None
