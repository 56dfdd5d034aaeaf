"""Settings in force, which `updateBrokerConfig` replaces while the broker runs.

Rules kept here:
- Services keep this object and read `settings.broker` and `settings.store` at each use, so that a change is
  in force at once. Who derives something from a setting listens to `on_change`.
- Every change makes a new data version, which `getBrokerConfig` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.model.topic import DataVersion
from cometmq.ports.clock import Clock, SystemClock
from cometmq.store.config import StoreConfig


class Settings:
    """The settings of a broker and of its store; belongs to the event loop."""

    def __init__(
        self, broker: BrokerConfig | None = None, store: StoreConfig | None = None, clock: Clock | None = None
    ) -> None:
        self.broker = broker or BrokerConfig()
        self.store = store or StoreConfig()
        self._clock = clock or SystemClock()
        self.version = DataVersion(0, self._clock.now_ms(), 0)
        self.on_change: list[Callable[[], None]] = []
        """Called after the settings changed."""
        self.flushes_before_answer: Final = self.store.flush_disk_type == "SYNC_FLUSH"
        """Whether a sender is answered only when its message is on the disk; of the start."""
        self._appears_ms: Final = self._clock.monotonic_ms() + max(self.store.disappear_time_after_start, 0)
        self.has_timers: Final = self.store.timer_wheel_enable
        """Whether messages can wait for a time; of the start."""

    @property
    def hidden_s(self) -> float:
        """How long this broker still stays out of the routes and delivers no timers, after its start."""
        return max(self._appears_ms - self._clock.monotonic_ms(), 0) / 1000

    @property
    def waits_for_replicas(self) -> bool:
        """Whether a sender is answered only when its message has as many copies as `inSyncReplicas` says."""
        return self.store.broker_role == "SYNC_MASTER"

    @property
    def is_slave(self) -> bool:
        return self.store.broker_role == "SLAVE"

    def change(self, broker: BrokerConfig, store: StoreConfig) -> None:
        """Put other settings in force, as far as they can change while the broker runs."""
        self.version = self.version.after(self._clock.now_ms())
        self.broker, self.store = broker, store
        for listener in self.on_change:
            listener()
