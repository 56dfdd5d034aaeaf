"""Settings of the pop consumer."""

from __future__ import annotations

from typing import Final

from cometmq.client.consumer.allocation import AllocationStrategy
from cometmq.client.consumer.settings import PushSettings
from cometmq.client.settings import ClientOptions, check_at_least, check_at_most
from cometmq.model.errors import SettingsError
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere

MAX_POP_BATCH: Final = 32
"""The maximum that brokers hand out at once."""
MIN_INVISIBLE_MS: Final = 5_000
MAX_INVISIBLE_MS: Final = 300_000

RETRY_DELAYS_S: Final = (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip


class PopSettings(PushSettings, frozen=True, kw_only=True):
    """The settings of a pop consumer. Those of push consumers about pulls have no effect here."""

    pop_invisible_time_ms: int = 60_000
    """How long no other consumer gets a message that this one has; listeners should take less."""
    pop_batch_nums: int = MAX_POP_BATCH
    """The most messages that one pop brings."""
    pop_threshold_for_queue: int = 96
    """With more messages of one queue held and not acknowledged than this, popping waits."""
    retry_delays_s: tuple[int, ...] = RETRY_DELAYS_S
    """The delays before a failed message is delivered again: the first time, the second, and so on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "pop_threshold_for_queue", "pop_batch_nums")
        check_at_most(self, MAX_POP_BATCH, "pop_batch_nums")
        check_at_least(self, MIN_INVISIBLE_MS, "pop_invisible_time_ms")
        check_at_most(self, MAX_INVISIBLE_MS, "pop_invisible_time_ms")
        if not self.retry_delays_s or min(self.retry_delays_s) < 1:
            raise SettingsError("retry_delays_s has to name at least one delay, each of at least 1 s")
        if self.broadcasting:
            raise SettingsError("a pop consumer shares messages; use a PushConsumer for broadcasting")
        if self.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise SettingsError("a pop consumer begins with the first message or the last, not at a time")


class PopOptions(ClientOptions, total=False):
    """The settings of a pop consumer as keywords; see `PopSettings`."""

    consume_from_where: ConsumeFromWhere | str
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
