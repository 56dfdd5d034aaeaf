"""When a send may be answered: the message is on the disk and on replicas, as far as the settings ask for it.

Rules kept here:
- The disk (`flushDiskType`) and the replicas (`brokerRole`, `inSyncReplicas`) are waited for at the same
  time. If both take too long, the answer is that of the replicas.
- A message needs `inSyncReplicas` copies. With `enableAutoInSyncReplicas` it needs only as many as there are
  replicas in sync, and at least `minInSyncReplicas`.
- If fewer than `minInSyncReplicas` are in sync, nothing is stored. With `enableSlaveActingMaster` that holds
  for `inSyncReplicas` as well.
- A broker that is no SYNC_MASTER waits for the disk alone, and directly.
"""

from __future__ import annotations

from collections.abc import Callable

from cometmq.broker.settings import Settings
from cometmq.replication.server import HaServer
from cometmq.store.log.flush import Done
from cometmq.store.message_store import MessageStore
from cometmq.store.status import PutStatus


class SendSafety:
    """Waits for the copies of messages; belongs to the event loop."""

    def __init__(self, settings: Settings, store: MessageStore, replicas: HaServer | None) -> None:
        self._settings = settings
        self._flusher = store.flusher
        self._flushes = settings.flushes_before_answer
        self._replicas = replicas if settings.waits_for_replicas else None
        self.answers_wait = self._flushes or self._replicas is not None
        """Whether an answer can be later than the put."""
        self.when_safe: Callable[[int, Done], None] = (
            self._flusher.when_flushed if self._replicas is None else self._when_copied
        )
        """Calls back with the status of what ends at an offset of the log; maybe before it returns."""

    @property
    def lacks_replicas(self) -> bool:
        """Whether a message cannot get enough copies, so that it is not to be stored."""
        replicas = self._replicas
        if replicas is None:
            return False
        config = self._settings.store
        if self._settings.broker.enable_slave_acting_master or config.enable_auto_in_sync_replicas:
            return self._need(replicas) > replicas.in_sync
        return config.min_in_sync_replicas > 1 and config.min_in_sync_replicas > replicas.in_sync

    def _need(self, replicas: HaServer) -> int:
        """How many copies a message needs, with the master's."""
        config = self._settings.store
        if not config.enable_auto_in_sync_replicas:
            return config.in_sync_replicas
        return max(min(config.in_sync_replicas, replicas.in_sync), config.min_in_sync_replicas)

    def _when_copied(self, end_offset: int, done: Done) -> None:
        replicas = self._replicas
        assert replicas is not None
        if not self._flushes:
            replicas.when_copied(
                end_offset,
                self._need(replicas),
                lambda enough: done(PutStatus.PUT_OK if enough else PutStatus.FLUSH_SLAVE_TIMEOUT),
            )
            return
        flushed: PutStatus | None = None
        copied: bool | None = None

        def told() -> None:
            if flushed is not None and copied is not None:
                done(flushed if copied else PutStatus.FLUSH_SLAVE_TIMEOUT)

        def on_disk(status: PutStatus) -> None:
            nonlocal flushed
            flushed = status
            told()

        def on_replicas(enough: bool) -> None:
            nonlocal copied
            copied = enough
            told()

        self._flusher.when_flushed(end_offset, on_disk)
        replicas.when_copied(end_offset, self._need(replicas), on_replicas)
