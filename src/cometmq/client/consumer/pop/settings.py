"""The settings of pop consumers, beside those that they share with push consumers.

Rules kept here: the names and defaults are RocketMQ's; what popping cannot do is refused when the settings
are made.
"""

from __future__ import annotations

from typing import Final

from cometmq.client.consumer.allocation import AllocationStrategy
from cometmq.client.consumer.settings import PushSettings
from cometmq.client.settings import ClientOptions, check_at_least
from cometmq.model.errors import SettingsError
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere

MAX_POP_BATCH: Final = 32
"""Brokers hand out no more at once."""
MIN_INVISIBLE_MS: Final = 5_000
MAX_INVISIBLE_MS: Final = 300_000
RETRY_DELAYS_S: Final = (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip


class PopSettings(PushSettings, frozen=True, kw_only=True):
    """What a pop consumer can be told. What push consumers are told about pulls has no meaning here."""

    pop_invisible_time_ms: int = 60_000
    """How long nobody else gets a message that this consumer has; listeners should need less."""
    pop_batch_nums: int = MAX_POP_BATCH
    pop_threshold_for_queue: int = 96
    """With more messages of one queue held and not acknowledged than this, popping waits."""
    retry_delays_s: tuple[int, ...] = RETRY_DELAYS_S
    """After how long a failed message comes again: the first time, the second, and so on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, "pop_threshold_for_queue", 1)
        _check_between(self, "pop_batch_nums", 1, MAX_POP_BATCH)
        _check_between(self, "pop_invisible_time_ms", MIN_INVISIBLE_MS, MAX_INVISIBLE_MS)
        if not self.retry_delays_s or min(self.retry_delays_s) < 1:
            raise SettingsError("retry_delays_s has to name at least one delay, each of at least 1 s")
        if self.broadcasting:
            raise SettingsError("a pop consumer shares messages; use a PushConsumer for broadcasting")
        if self.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise SettingsError("a pop consumer begins with the first message or the last, not at a time")


def _check_between(settings: PopSettings, name: str, least: int, most: int) -> None:
    check_at_least(settings, name, least)
    value = getattr(settings, name)
    if value > most:
        raise SettingsError(f"{name} is {value}; at most {most} is possible")


class PopOptions(ClientOptions, total=False):
    """The settings of a pop consumer as keywords; see `PopSettings`."""

    consume_from_where: ConsumeFromWhere
    strategy: AllocationStrategy
    rebalance_interval_ms: int
    min_rebalance_interval_ms: int
    pull_delay_when_exception_ms: int
    max_reconsume_times: int
    unit_mode: bool
    stop_timeout_ms: int
    enable_trace: bool
    trace_topic: str
    ordered: bool
    consume_threads: int
    consume_message_batch_max_size: int
    suspend_current_queue_time_ms: int
    pop_invisible_time_ms: int
    pop_batch_nums: int
    pop_threshold_for_queue: int
    retry_delays_s: tuple[int, ...]
