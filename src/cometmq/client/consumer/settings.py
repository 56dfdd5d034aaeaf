"""Consumer settings, in addition to those of all clients.

Rule kept here: names and defaults are RocketMQ's, in Python spelling and with units. A value that cannot work
is refused when the settings are made.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from cometmq.client.consumer.allocation import AllocationStrategy, Averagely
from cometmq.client.settings import ClientOptions, ClientSettings, check_at_least, check_at_most
from cometmq.model.errors import SettingsError
from cometmq.model.names import TRACE_TOPIC
from cometmq.model.times import time_fault
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere, MessageModel

MIB: Final = 1024 * 1024
MAX_BATCH: Final = 1024
UNLIMITED: Final = -1
DEFAULT_MAX_RECONSUME_TIMES: Final = 16
HALF_AN_HOUR_MS: Final = 30 * 60 * 1000
_OFFSETS_VARIABLE: Final = "COMETMQ_LOCAL_OFFSET_STORE_DIR"


def default_offset_folder() -> Path:
    """The default folder for the offsets of broadcasting consumers."""
    named = os.environ.get(_OFFSETS_VARIABLE)
    return Path(named) if named else Path.home() / ".rocketmq_offsets"


class ConsumerSettings(ClientSettings, frozen=True, kw_only=True):
    """The settings of every consumer."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """`CLUSTERING` shares messages among the members of the group; `BROADCASTING` gives each member all."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group starts in a queue for which it has no offset; also `"earliest"` or `"latest"`."""
    consume_timestamp_ms: int | None = None
    """The start time for `CONSUME_FROM_TIMESTAMP`; None is half an hour before the consumer starts."""
    strategy: AllocationStrategy = Averagely()
    """Decides which queues each member of the group reads; the same for all members."""
    pull_threshold_for_queue: int = 1000
    """With more messages of one queue held than this, pulling waits."""
    pull_threshold_size_for_queue_mib: int = 100
    """With more MiB of one queue held than this, pulling waits."""
    rebalance_interval_ms: int = 20_000
    """How often queues are shared out again even if nobody said that the group changed."""
    min_rebalance_interval_ms: int = 1_000
    """The shortest time between two rebalances."""
    pull_delay_when_exception_ms: int = 1_000
    """How long reading a queue pauses after an error."""
    max_reconsume_times: int = UNLIMITED
    """Retries of a message before it becomes a dead letter; -1 is 16, and unlimited if ordered."""
    unit_mode: bool = False
    """Tells brokers in heartbeats that the group belongs to a unit."""
    local_offset_folder: Path | None = None
    """The folder of the offsets when broadcasting; None is `.rocketmq_offsets` in the home folder."""
    stop_timeout_ms: int = 30_000
    """How long a stop waits for running listeners."""
    rebalance_listener_timeout_ms: int = 10_000
    """How long rebalancing, and a stop, waits for each call of a rebalance listener."""
    enable_trace: bool = False
    """Record message traces, for `cometmq message trace` and others to read."""
    trace_topic: str = TRACE_TOPIC
    """The topic of the traces."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "pull_threshold_for_queue", "pull_threshold_size_for_queue_mib")
        check_at_least(self, 1, "rebalance_interval_ms")
        check_at_least(
            self, 0, "min_rebalance_interval_ms", "pull_delay_when_exception_ms", "stop_timeout_ms"
        )
        check_at_least(self, 1, "rebalance_listener_timeout_ms")
        check_at_least(self, UNLIMITED, "max_reconsume_times")
        _choose(self, "message_model", MessageModel)
        _choose(self, "consume_from_where", ConsumeFromWhere)
        if self.consume_timestamp_ms is not None:
            self._check_timestamp(self.consume_timestamp_ms)

    def _check_timestamp(self, timestamp_ms: int) -> None:
        fault = time_fault("consume_timestamp_ms", timestamp_ms)
        if fault is None and self.consume_from_where is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            fault = "consume_timestamp_ms needs consume_from_where='CONSUME_FROM_TIMESTAMP'"
        if fault is not None:
            raise SettingsError(fault)

    @property
    def broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    @property
    def send_back_limit(self) -> int:
        """The number of send-backs after which a broker makes a message a dead letter."""
        return DEFAULT_MAX_RECONSUME_TIMES if self.max_reconsume_times < 0 else self.max_reconsume_times


class PushSettings(ConsumerSettings, frozen=True, kw_only=True):
    """The settings of a push consumer."""

    ordered: bool = False
    """Consume the messages of each queue in order, one batch at a time."""
    consume_threads: int = 20
    """How many listeners run at once: plain functions on threads, coroutine functions as tasks."""
    consume_message_batch_max_size: int = 1
    """With more than 1, listeners get a list of messages."""
    pull_batch_size: int = 32
    """The most messages that one pull brings."""
    pull_batch_size_in_bytes: int = 256 * 1024
    """The most bytes that one pull brings; one message comes in any case."""
    wait_between_pulls_ms: int = 0
    """A pause after every pull."""
    pull_threshold_for_topic: int = UNLIMITED
    """A limit on messages over all queues of this consumer, in place of that of single queues; -1 is none."""
    pull_threshold_size_for_topic_mib: int = UNLIMITED
    """A limit in MiB over all queues of this consumer, in place of that of single queues; -1 is none."""
    consume_concurrently_max_span: int = 2000
    """With a greater distance between the first and last message held, pulling waits."""
    consume_timeout_min: int = 15
    """A message that takes longer is sent back to the broker."""
    suspend_current_queue_time_ms: int = 1_000
    """How long an ordered queue waits before a failed message is retried."""
    post_subscription_when_pull: bool = False
    """Send the subscription with every pull, for brokers that do not know it from heartbeats."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "consume_threads", "consume_timeout_min", "pull_batch_size_in_bytes")
        check_at_least(self, 1, "consume_concurrently_max_span")
        check_at_least(self, 0, "wait_between_pulls_ms")
        check_at_least(self, UNLIMITED, "pull_threshold_for_topic", "pull_threshold_size_for_topic_mib")
        check_at_least(self, 1, "consume_message_batch_max_size", "pull_batch_size")
        check_at_most(self, MAX_BATCH, "consume_message_batch_max_size", "pull_batch_size")


class PullSettings(ConsumerSettings, frozen=True, kw_only=True):
    """The settings of a pull consumer."""

    pull_batch_size: int = 10
    """The most messages that one pull or poll brings."""
    pull_threshold_for_all: int = 10_000
    """With more messages held over all queues than this, pulling waits."""
    consume_max_span: int = 2000
    """With a greater distance between the first and last message held, pulling waits."""
    poll_timeout_ms: int = 5_000
    """How long a poll waits for messages, unless it says so itself."""
    auto_commit: bool = True
    """Commit what was polled with a later poll, and at the end."""
    auto_commit_interval_ms: int = 5_000
    """The time between two such commits."""
    broker_suspend_max_time_ms: int = 20_000
    """How long a broker without new messages holds a pull."""
    consumer_timeout_when_suspend_ms: int = 30_000
    """How long the answer to a pull that is held may take."""
    consumer_pull_timeout_ms: int = 10_000
    """How long the answer to a pull that is not held may take."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "pull_batch_size", "pull_threshold_for_all", "consume_max_span")
        check_at_least(self, 1_000, "auto_commit_interval_ms")
        check_at_most(self, MAX_BATCH, "pull_batch_size")
        if self.consumer_timeout_when_suspend_ms < self.broker_suspend_max_time_ms:
            raise SettingsError(
                "consumer_timeout_when_suspend_ms has to be longer than broker_suspend_max_time_ms"
            )


def _choose(settings: ConsumerSettings, name: str, enum: type[MessageModel | ConsumeFromWhere]) -> None:
    """Replace the text of a choice, in any case, by the choice."""
    given = getattr(settings, name)
    if isinstance(given, enum):
        return
    others = {"EARLIEST": "CONSUME_FROM_FIRST_OFFSET", "LATEST": "CONSUME_FROM_LAST_OFFSET"}
    text = str(given).upper()
    chosen = enum.__members__.get(others.get(text, text))
    if chosen is None or not isinstance(given, str):
        known = [*enum.__members__, *(("earliest", "latest") if enum is ConsumeFromWhere else ())]
        raise SettingsError(f"{name} is {given!r}; it has to be one of {', '.join(known)}")
    msgspec.structs.force_setattr(settings, name, chosen)


class ConsumerOptions(ClientOptions, total=False):
    """`ConsumerSettings` as keywords."""

    message_model: MessageModel | str
    consume_from_where: ConsumeFromWhere | str
    consume_timestamp_ms: int | None
    strategy: AllocationStrategy
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue_mib: int
    rebalance_interval_ms: int
    min_rebalance_interval_ms: int
    pull_delay_when_exception_ms: int
    max_reconsume_times: int
    unit_mode: bool
    local_offset_folder: Path | None
    stop_timeout_ms: int
    rebalance_listener_timeout_ms: int
    enable_trace: bool
    trace_topic: str


class PushOptions(ConsumerOptions, total=False):
    """`PushSettings` as keywords."""

    ordered: bool
    consume_threads: int
    consume_message_batch_max_size: int
    pull_batch_size: int
    pull_batch_size_in_bytes: int
    wait_between_pulls_ms: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic_mib: int
    consume_concurrently_max_span: int
    consume_timeout_min: int
    suspend_current_queue_time_ms: int
    post_subscription_when_pull: bool


class PullOptions(ConsumerOptions, total=False):
    """`PullSettings` as keywords."""

    pull_batch_size: int
    pull_threshold_for_all: int
    consume_max_span: int
    poll_timeout_ms: int
    auto_commit: bool
    auto_commit_interval_ms: int
    broker_suspend_max_time_ms: int
    consumer_timeout_when_suspend_ms: int
    consumer_pull_timeout_ms: int
