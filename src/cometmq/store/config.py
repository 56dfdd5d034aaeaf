"""The settings of a message store: RocketMQ's property names and defaults.

Rules kept here:
- Every key that Apache's store has is kept, shown and stored, so that a configuration moves between both
  unchanged. Those marked "no effect" shape threads, locks or buffers that do not exist here.
- A setting that would need another file format is refused, never ignored: the messages of such a store would
  be there and not be seen.
- What no request may change is marked `Fixed` where it is declared: folders, sizes of files, addresses, ports
  and the role.
- Where Apache takes a value but uses a nearer one (a ratio, a file size), the property beside it says which.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, field

from cometmq.model.errors import SettingsError
from cometmq.model.settings import Fixed, Only, refuse_unsupported

_LARGEST: Final = 2**31 - 1
Port = Annotated[int, Meta(ge=0, le=65_535)]
Natural = Annotated[int, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=_LARGEST)]
Long = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
FileSize = Annotated[int, Meta(ge=1024, le=_LARGEST)]
QueueFileSize = Annotated[int, Meta(ge=20, le=_LARGEST)]
BatchQueueFileSize = Annotated[int, Meta(ge=46, le=_LARGEST)]

PATH_SEPARATOR: Final = ","
QUEUE_UNIT_SIZE: Final = 20
_HOURS: Final = re.compile(r"\s*([01]?\d|2[0-3])(\s*;\s*([01]?\d|2[0-3]))*\s*")
_LONGEST_TIMER_S: Final = 10 * 365 * 24 * 3600
_DELAY_LEVELS: Final = re.compile(r"\s*\d{1,10}[smhd](\s+\d{1,10}[smhd])*\s*")
_TIMER_PRECISIONS_MS: Final = (1000, 500, 200, 100)


def _home_store() -> str:
    return str(Path.home() / "store")


UNSUPPORTED: Final = (
    Only(
        "enableDLegerCommitLog",
        "false",
        "its log has another format; set it to false, and let Apache's broker serve a store with such a log",
    ),
    Only(
        "rocksdbCQDoubleWriteEnable",
        "false",
        "queues are written to files only; set it to false, and let Apache's broker fill a database",
    ),
)
_REPLICAS: Final = "there are no replicas yet, and a message would be acknowledged with one copy"
NO_REPLICAS: Final = (
    Only(
        "brokerRole",
        "ASYNC_MASTER",
        f"{_REPLICAS}; choose ASYNC_MASTER, and flushDiskType = SYNC_FLUSH where no message may be lost",
    ),
    Only("totalReplicas", "1", f"{_REPLICAS}; set it to 1"),
    Only("inSyncReplicas", "1", f"{_REPLICAS}; set it to 1"),
    Only("minInSyncReplicas", "1", f"{_REPLICAS}; set it to 1"),
    Only("allAckInSyncStateSet", "false", f"{_REPLICAS}; set it to false"),
    Only("enableAutoInSyncReplicas", "false", f"{_REPLICAS}; set it to false"),
    Only("asyncLearner", "false", f"{_REPLICAS}; set it to false"),
    Only("duplicationEnable", "false", f"{_REPLICAS}; set it to false"),
)
"""What a broker refuses; tools that only read the files of a replica take its settings as they are."""


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the store's part of `GET_BROKER_CONFIG` shows."""

    # Where
    store_path_root_dir: Fixed[str] = field(default_factory=_home_store)
    store_path_commit_log: Fixed[str | None] = None
    read_only_commit_log_store_paths: Fixed[str | None] = None
    store_path_epoch_file: Fixed[str | None] = None  # no effect: there is no controller
    store_path_broker_identity: Fixed[str | None] = None  # no effect
    store_type: Fixed[Literal["default"]] = "default"

    # Commit log
    mapped_file_size_commit_log: Fixed[FileSize] = 1024 * 1024 * 1024
    max_message_size: Positive = 4 * 1024 * 1024
    max_topic_length: Positive = 127  # no effect
    auto_message_version_on_topic_len: bool = True
    enabled_append_prop_crc: bool = field(name="enabledAppendPropCRC", default=False)
    force_verify_prop_crc: bool = field(name="forceVerifyPropCRC", default=False)
    check_crc_on_recover: bool = field(name="checkCRCOnRecover", default=True)
    recover_what_is_left: bool = False  # ours: a damaged log is repaired, not refused; for one start
    max_recovery_commitlog_files: Positive = 30  # no effect
    max_checksum_range: Long = 1024 * 1024 * 1024  # no effect
    put_message_timeout: Natural = 8000  # no effect
    os_page_cache_busy_time_out_mills: Long = 1000  # no effect
    max_async_put_message_requests: Positive = 5000  # no effect
    topic_queue_lock_num: int = 32  # no effect: appends are serial
    use_reentrant_lock_when_put_message: bool = True  # no effect
    use_abs_lock: bool = field(name="useABSLock", default=False)  # no effect
    spin_lock_collision_retreat_optimal_degree: int = 1000  # no effect
    debug_lock_enable: bool = False  # no effect

    # Flushing
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    sync_flush_timeout: Positive = 5000
    flush_commit_log_timed: bool = True
    flush_interval_commit_log: Positive = 500
    flush_commit_log_least_pages: Natural = 4
    flush_commit_log_thorough_interval: Natural = 10_000
    wake_flush_when_put_message: bool = False  # no effect
    flush_interval_consume_queue: Positive = 1000
    flush_consume_queue_least_pages: Natural = 2
    flush_consume_queue_thorough_interval: Natural = 60_000
    flush_delay_offset_interval: Long = 10_000
    warm_mapped_file_enable: bool = field(name="warmMapedFileEnable", default=False)
    flush_least_pages_when_warm_mapped_file: Positive = field(
        name="flushLeastPagesWhenWarmMapedFile", default=4096
    )
    transient_store_pool_enable: bool = False  # no effect: appends go into the mapped file
    transient_store_pool_size: int = 5  # no effect
    fast_fail_if_no_buffer_in_store_pool: bool = False  # no effect
    commit_interval_commit_log: int = 200  # no effect
    commit_commit_log_least_pages: int = 4  # no effect
    commit_commit_log_thorough_interval: int = 200  # no effect
    wake_commit_when_put_message: bool = True  # no effect

    # Consume queues and dispatch
    mapped_file_size_consume_queue: Fixed[QueueFileSize] = 300_000 * QUEUE_UNIT_SIZE
    enable_consume_queue_ext: Fixed[bool] = False
    mapped_file_size_consume_queue_ext: Fixed[FileSize] = 48 * 1024 * 1024
    bit_map_length_consume_queue_ext: Fixed[Natural] = 64  # no effect
    mapper_file_size_batch_consume_queue: Fixed[BatchQueueFileSize] = 300_000 * 46  # no effect
    search_bcq_by_cache_enable: bool = True  # no effect
    max_consume_queue_scan: Positive = 20_000  # no effect
    sample_count_threshold: Positive = 5000  # no effect
    correct_logic_min_offset_sleep_interval: Natural = 1  # no effect
    correct_logic_min_offset_force_interval: Natural = 300_000  # no effect
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: Natural = 20_000
    read_un_committed: bool = False
    duplication_enable: bool = False
    put_consume_queue_data_by_file_channel: bool = True  # no effect
    enable_build_consume_queue_concurrently: bool = False  # no effect: dispatch is part of the append
    batch_dispatch_request_thread_pool_nums: int = 16  # no effect
    dispatch_from_sender_thread: bool = False  # no effect
    dispatch_cq_threads: int = 10  # no effect
    dispatch_cq_cache_num: int = 4096  # no effect
    enable_async_reput: bool = True  # no effect
    recheck_reput_offset_from_cq: bool = False  # no effect

    # Index
    message_index_enable: bool = True
    message_index_safe: bool = False  # no effect: the index is always brought up to the log
    max_hash_slot_num: Fixed[Positive] = 5_000_000
    max_index_num: Fixed[Annotated[int, Meta(ge=2, le=_LARGEST)]] = 20_000_000
    max_msgs_num_batch: Positive = 64
    default_query_max_num: Positive = 32
    put_msg_index_hight_water: int = 600_000  # no effect: there is no queue before the index

    # Reading
    max_filter_message_size: Positive = 16_000
    travel_cq_file_num_when_get_message: Positive = 1
    pull_batch_max_message_count: Positive = 160  # no effect
    max_transfer_bytes_on_message_in_memory: Positive = 256 * 1024
    max_transfer_count_on_message_in_memory: Positive = 32
    max_transfer_bytes_on_message_in_disk: Positive = 64 * 1024
    max_transfer_count_on_message_in_disk: Positive = 8
    access_message_in_memory_max_ratio: Percent = 40
    access_message_in_memory_hot_ratio: Percent = 26  # no effect
    offset_check_in_slave: bool = False
    disk_fall_recorded: bool = True  # no effect
    enable_batch_push: bool = False  # no effect
    cold_data_flow_control_enable: bool = False
    cold_data_scan_enable: bool = False  # no effect: what is cold is asked of each read, not looked for
    timer_cold_data_check_interval_ms: Natural = 60_000  # no effect
    sample_steps: Positive = 32  # no effect
    data_read_ahead_enable: bool = True
    mapped_file_swap_enable: bool = True  # no effect: the kernel takes cold pages back by itself
    commit_log_force_swap_map_interval: Long = 43_200_000  # no effect
    commit_log_swap_map_interval: Long = 3_600_000  # no effect
    commit_log_swap_map_reserve_file_num: int = 100  # no effect
    logic_queue_force_swap_map_interval: Long = 43_200_000  # no effect
    logic_queue_swap_map_interval: Long = 3_600_000  # no effect
    logic_queue_swap_map_reserve_file_num: int = 20  # no effect
    clean_swaped_map_interval: Long = 300_000  # no effect

    # Retention
    file_reserved_time: Natural = 72
    delete_when: str = "04"
    clean_resource_interval: Positive = 10_000
    delete_commit_log_files_interval: Natural = 100
    delete_consume_queue_files_interval: Natural = 100  # no effect
    delete_file_batch_max: Positive = 10
    max_batch_delete_files_num: Positive = 50  # no effect
    disk_max_used_space_ratio: Percent = 75
    disk_space_clean_forcibly_ratio: Percent = 85
    disk_space_warning_level_ratio: Percent = 90
    clean_file_forcibly_enable: bool = True
    replicas_per_disk_partition: Positive = 1  # no effect
    logical_disk_space_clean_forcibly_threshold: Fraction = 0.8  # no effect
    enable_clean_expired_offset: bool = False  # no effect
    destroy_mapped_file_interval_forcibly: int = field(  # no effect: who reads a removed file keeps it
        name="destroyMapedFileIntervalForcibly", default=120_000
    )
    redelete_hanged_file_interval: int = 120_000  # no effect

    # Replication
    broker_role: Fixed[Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]] = "ASYNC_MASTER"
    ha_listen_port: Fixed[Port] = 0
    """0 is the port behind the broker's main port."""
    ha_master_address: Fixed[str | None] = None  # no effect: there are no replicas
    ha_send_heartbeat_interval: Positive = 5000  # no effect
    ha_housekeeping_interval: Positive = 20_000  # no effect
    ha_transfer_batch_size: Positive = 32 * 1024  # no effect
    ha_max_gap_not_in_sync: Natural = 256 * 1024 * 1024  # no effect
    ha_max_time_slave_not_catchup: Long = 15_000  # no effect
    ha_flow_control_enable: bool = False  # no effect
    max_ha_transfer_byte_in_second: Long = 100 * 1024 * 1024  # no effect
    slave_timeout: Natural = 3000  # no effect
    max_slave_resend_length: Long = 256 * 1024 * 1024  # no effect
    sync_from_last_file: bool = False  # no effect
    async_learner: bool = False
    sync_master_flush_offset_when_startup: bool = False  # no effect
    total_replicas: Positive = 1
    in_sync_replicas: Positive = 1
    min_in_sync_replicas: Positive = 1
    all_ack_in_sync_state_set: bool = False
    enable_auto_in_sync_replicas: bool = False

    # Delayed messages
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    enable_schedule_message_stats: bool = True  # no effect
    enable_schedule_async_deliver: bool = False  # no effect
    schedule_async_deliver_max_pending_limit: Positive = 2000  # no effect
    schedule_async_deliver_max_resend_num2_blocked: Natural = 3  # no effect
    timer_wheel_enable: bool = True
    mapped_file_size_timer_log: Fixed[FileSize] = 100 * 1024 * 1024
    timer_precision_ms: Fixed[Positive] = 1000
    timer_roll_window_slot: Positive = 172_800
    timer_flush_interval_ms: Positive = 1000
    timer_max_delay_sec: Positive = 259_200
    timer_congest_num_each_slot: Natural = _LARGEST
    timer_stop_enqueue: bool = False
    timer_stop_dequeue: bool = False
    timer_skip_unknown_error: bool = False  # no effect
    timer_enable_retry_until_success: bool = False  # no effect: what can never be put is set aside
    timer_intercept_delay_level: bool = False  # no effect
    timer_enable_check_metrics: bool = True
    timer_check_metrics_when: str = "05"
    timer_metric_small_threshold: Natural = 1_000_000  # no effect
    timer_progress_log_interval_ms: Natural = 10_000  # no effect
    disappear_time_after_start: int = -1  # no effect
    timer_warm_enable: bool = False  # no effect
    timer_get_message_thread_num: int = 3  # no effect
    timer_put_message_thread_num: int = 3  # no effect
    timer_enable_disruptor: bool = False  # no effect

    # Compacted topics
    enable_compaction: bool = True  # no effect: topics that are compacted are refused
    compaction_mapped_file_size: Fixed[FileSize] = 100 * 1024 * 1024  # no effect
    compaction_cq_mapped_file_size: Fixed[FileSize] = 10 * 1024 * 1024  # no effect
    compaction_schedule_internal: Positive = 900_000  # no effect
    max_offset_map_size: Positive = 100 * 1024 * 1024  # no effect
    compaction_thread_num: int = 6  # no effect

    # DLedger and RocksDB
    enable_d_leger_commit_log: bool = field(name="enableDLegerCommitLog", default=False)
    store_path_d_ledger_commit_log: Fixed[str | None] = field(  # no effect
        name="storePathDLedgerCommitLog", default=None
    )
    d_leger_group: Fixed[str | None] = None  # no effect
    d_leger_peers: Fixed[str | None] = None  # no effect
    d_leger_self_id: Fixed[str | None] = None  # no effect
    preferred_leader_id: Fixed[str | None] = None  # no effect
    rocksdb_cq_double_write_enable: bool = field(name="rocksdbCQDoubleWriteEnable", default=False)
    bottom_most_compression_type_for_consume_queue_store: str = "zstd"  # no effect
    rocksdb_compression_type: str = "lz4"  # no effect
    rocksdb_flush_wal_frequency: int = 1024  # no effect
    rocksdb_wal_file_rolling_threshold: Long = 1024 * 1024 * 1024  # no effect
    clean_rocks_db_dirty_cq_interval_min: Long = field(  # no effect
        name="cleanRocksDBDirtyCQIntervalMin", default=60
    )
    stat_rocks_db_cq_interval_sec: Long = field(name="statRocksDBCQIntervalSec", default=10)  # no effect
    mem_table_flush_interval_ms: Long = 3_600_000  # no effect
    real_time_persist_rocks_db_config: bool = field(  # no effect
        name="realTimePersistRocksDBConfig", default=True
    )
    enable_rocks_db_log: bool = field(name="enableRocksDBLog", default=False)  # no effect

    def __post_init__(self) -> None:
        refuse_unsupported(self, UNSUPPORTED)
        for name, hours in (
            ("deleteWhen", self.delete_when),
            ("timerCheckMetricsWhen", self.timer_check_metrics_when),
        ):
            if not _HOURS.fullmatch(hours):
                raise SettingsError(f"{name} = {hours!r} is not hours of the day such as 04 or 04;16")
        if not _DELAY_LEVELS.fullmatch(self.message_delay_level):
            raise SettingsError(
                f"messageDelayLevel = {self.message_delay_level!r} is not delays such as 1s 5m 2h"
            )
        if self.timer_max_delay_sec > _LONGEST_TIMER_S:
            raise SettingsError(
                f"timerMaxDelaySec = {self.timer_max_delay_sec} is more than ten years ({_LONGEST_TIMER_S})"
            )
        if not self.writable_commit_log_folders:
            raise SettingsError(
                "storePathCommitLog names no folder that may be written; "
                "at least one must not be in readOnlyCommitLogStorePaths"
            )

    @property
    def root(self) -> Path:
        return Path(self.store_path_root_dir)

    @property
    def checks_records(self) -> bool:
        """Whether every record that is served has to be whole, by its checksums."""
        return self.enabled_append_prop_crc or self.force_verify_prop_crc

    @property
    def commit_log_folders(self) -> tuple[Path, ...]:
        """Every folder that commit log files may be in."""
        return tuple(
            sorted({*self.writable_commit_log_folders, *_paths(self.read_only_commit_log_store_paths)})
        )

    @property
    def writable_commit_log_folders(self) -> tuple[Path, ...]:
        """The folders that new commit log files go to."""
        everywhere = _paths(self.store_path_commit_log) or [self.root / "commitlog"]
        return tuple(sorted({*everywhere} - {*_paths(self.read_only_commit_log_store_paths)}))

    @property
    def consume_queue_file_size(self) -> int:
        """The size in force: whole units."""
        return -(-self.mapped_file_size_consume_queue // QUEUE_UNIT_SIZE) * QUEUE_UNIT_SIZE

    @property
    def timer_slot_ms(self) -> int:
        """The precision in force: the next smaller one that a timer wheel can have."""
        return next((ms for ms in _TIMER_PRECISIONS_MS if ms <= self.timer_precision_ms), 100)

    @property
    def delete_expired_above_percent(self) -> int:
        return min(max(self.disk_max_used_space_ratio, 10), 95)

    @property
    def delete_unexpired_above_percent(self) -> int:
        return min(max(self.disk_space_clean_forcibly_ratio, 30), 85)

    @property
    def refuse_writes_above_percent(self) -> int:
        return min(max(self.disk_space_warning_level_ratio, 35), 90)


def _paths(text: str | None) -> list[Path]:
    return [Path(part.strip()) for part in (text or "").split(PATH_SEPARATOR) if part.strip()]
