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
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, field

from cometmq.model.errors import SettingsError
from cometmq.model.settings import Fixed, JavaInt, NextStart, NoEffect, Only, refuse_unsupported

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

Network = IPv4Network | IPv6Network
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
_NO_CONTROLLER: Final = "there is no controller that knows which replicas are in sync"
NO_REPLICATION: Final = (
    Only("totalReplicas", "1", "a broker does not wait for the others of its set at its start; set it to 1"),
    Only("allAckInSyncStateSet", "false", f"{_NO_CONTROLLER}; set it to false, and use inSyncReplicas"),
    Only("asyncLearner", "false", f"{_NO_CONTROLLER}; set it to false"),
    Only("duplicationEnable", "false", "messages would not be copied to slaves; set it to false"),
)
"""What a broker refuses; tools that only read the files of a replica take its settings as they are."""


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the store's part of `GET_BROKER_CONFIG` shows."""

    # Where
    store_path_root_dir: Fixed[str] = field(default_factory=_home_store)
    """Folder of the store."""
    store_path_commit_log: Fixed[str | None] = None
    """Folders of the commit log, separated by commas; without it `commitlog` in the folder of the store."""
    read_only_commit_log_store_paths: Fixed[str | None] = None
    """Folders of the commit log that are read and get no new files."""
    store_path_epoch_file: NoEffect[Fixed[str | None]] = None
    """File of a controller's epochs; there is no controller."""
    store_path_broker_identity: NoEffect[Fixed[str | None]] = None
    """File of the identity that a controller gives; there is no controller."""
    store_type: Fixed[Literal["default"]] = "default"
    """How queues are kept; `default` is files, the only one here."""

    # Commit log
    mapped_file_size_commit_log: Fixed[FileSize] = 1024 * 1024 * 1024
    """Size of a commit log file in bytes."""
    max_message_size: Positive = 4 * 1024 * 1024
    """Longest body of a message, or of a batch, in bytes."""
    max_topic_length: NoEffect[Positive] = 127
    """Longest topic name; 127 bytes, as RocketMQ's clients allow."""
    auto_message_version_on_topic_len: NextStart[bool] = True
    """Writes records of format 2 for topics longer than 127 bytes; off, such topics are refused."""
    enabled_append_prop_crc: NextStart[bool] = field(name="enabledAppendPropCRC", default=False)
    """Writes a checksum of the whole record into its properties, and checks it on reads."""
    force_verify_prop_crc: NextStart[bool] = field(name="forceVerifyPropCRC", default=False)
    """A recovery requires such a checksum of every record, and reads check it."""
    check_crc_on_recover: NextStart[bool] = field(name="checkCRCOnRecover", default=True)
    """A recovery checks the checksums of bodies."""
    recover_what_is_left: NextStart[bool] = False
    """Repairs a damaged log instead of refusing the start; meant for one start (`--recover-what-is-left`)."""
    max_recovery_commitlog_files: NoEffect[Positive] = 30
    """Files that a recovery reads back; it begins at the checkpoint."""
    max_checksum_range: NoEffect[Long] = 1024 * 1024 * 1024
    """Bytes whose checksums a recovery checks; it checks everything after the checkpoint."""
    put_message_timeout: NoEffect[Natural] = 8000
    """Longest wait for an append in ms; appends do not wait."""
    os_page_cache_busy_time_out_mills: NoEffect[Long] = 1000
    """Append time in ms from which the disk counts as busy; appends do not wait for the disk."""
    max_async_put_message_requests: NoEffect[Positive] = 5000
    """Appends in flight; appends are serial."""
    topic_queue_lock_num: NoEffect[int] = 32
    """Locks around queue offsets; appends are serial."""
    use_reentrant_lock_when_put_message: NoEffect[bool] = True
    """Kind of lock around appends; appends are serial."""
    use_abs_lock: NoEffect[bool] = field(name="useABSLock", default=False)
    """Adaptive lock around appends; appends are serial."""
    spin_lock_collision_retreat_optimal_degree: NoEffect[int] = 1000
    """Tuning of the adaptive lock; appends are serial."""
    debug_lock_enable: NoEffect[bool] = False
    """Logs long locks; there are none."""

    # Flushing
    flush_disk_type: NextStart[Literal["ASYNC_FLUSH", "SYNC_FLUSH"]] = "ASYNC_FLUSH"
    """SYNC_FLUSH answers a send when its message is on the disk, ASYNC_FLUSH at once."""
    sync_flush_timeout: NextStart[Positive] = 5000
    """How long a send waits for its flush, in ms, before it is answered with FLUSH_DISK_TIMEOUT."""
    flush_commit_log_timed: NextStart[bool] = True
    """ASYNC_FLUSH flushes periodically; off, each message starts a flush."""
    flush_interval_commit_log: NextStart[Positive] = 500
    """How often the log is flushed, in ms."""
    flush_commit_log_least_pages: NextStart[Natural] = 4
    """Unflushed pages of 4 KiB below which a periodic flush waits."""
    flush_commit_log_thorough_interval: NextStart[Natural] = 10_000
    """How often the log is flushed however little there is, in ms."""
    wake_flush_when_put_message: NoEffect[bool] = False
    """A message starts a flush; `flushCommitLogTimed=false` does that."""
    flush_interval_consume_queue: NextStart[Positive] = 1000
    """How often queues and index are flushed, in ms."""
    flush_consume_queue_least_pages: NextStart[Natural] = 2
    """Unflushed pages of 4 KiB below which a queue waits."""
    flush_consume_queue_thorough_interval: NextStart[Natural] = 60_000
    """How often queues are flushed however little there is, in ms."""
    flush_delay_offset_interval: NextStart[Long] = 10_000
    """How often offsets of delay levels are saved, in ms; 100 to 1,000 are used."""
    warm_mapped_file_enable: NextStart[bool] = field(name="warmMapedFileEnable", default=False)
    """Touches every page of a new commit log file before it is used."""
    flush_least_pages_when_warm_mapped_file: NextStart[Positive] = field(
        name="flushLeastPagesWhenWarmMapedFile", default=4096
    )
    """Pages that are flushed together while a file is touched, with SYNC_FLUSH."""
    transient_store_pool_enable: NoEffect[bool] = False
    """Appends to a buffer outside the mapped file first; appends go into the mapped file."""
    transient_store_pool_size: NoEffect[int] = 5
    """Buffers of that pool; there is none."""
    fast_fail_if_no_buffer_in_store_pool: NoEffect[bool] = False
    """Refuses sends when that pool is empty; there is none."""
    commit_interval_commit_log: NoEffect[int] = 200
    """How often that pool goes into the file in ms; there is none."""
    commit_commit_log_least_pages: NoEffect[int] = 4
    """Pages of that pool that go into the file together; there is none."""
    commit_commit_log_thorough_interval: NoEffect[int] = 200
    """How often that pool goes into the file whatever it has, in ms; there is none."""
    wake_commit_when_put_message: NoEffect[bool] = True
    """A message starts a commit of that pool; there is none."""

    # Consume queues and dispatch
    mapped_file_size_consume_queue: Fixed[QueueFileSize] = 300_000 * QUEUE_UNIT_SIZE
    """Size of a consume queue file in bytes; whole entries of 20 bytes are used."""
    enable_consume_queue_ext: Fixed[bool] = False
    """Reads and keeps extension files of consume queues."""
    mapped_file_size_consume_queue_ext: Fixed[FileSize] = 48 * 1024 * 1024
    """Size of an extension file in bytes."""
    bit_map_length_consume_queue_ext: NoEffect[Fixed[Natural]] = 64
    """Bits of a Bloom filter in an extension file; filters look at the properties."""
    mapper_file_size_batch_consume_queue: NoEffect[Fixed[BatchQueueFileSize]] = 300_000 * 46
    """Size of a batch consume queue file; topics with such queues are refused."""
    search_bcq_by_cache_enable: NoEffect[bool] = True
    """Cache of batch consume queues; topics with such queues are refused."""
    max_consume_queue_scan: NoEffect[Positive] = 20_000
    """Entries that an estimate of the lag reads; lag is counted from offsets."""
    sample_count_threshold: NoEffect[Positive] = 5000
    """Entries from which the lag is sampled; lag is counted from offsets."""
    correct_logic_min_offset_sleep_interval: NoEffect[Natural] = 1
    """Pause while first offsets of queues are corrected in ms; they follow the log at once."""
    correct_logic_min_offset_force_interval: NoEffect[Natural] = 300_000
    """How often first offsets are corrected in any case in ms; they follow the log at once."""
    enable_lmq: NextStart[bool] = False
    """Gives messages offsets in the light queues that they name."""
    enable_multi_dispatch: NextStart[bool] = False
    """Writes messages also to the light queues that they name, with `enableLmq`."""
    max_lmq_consume_queue_num: NextStart[Natural] = 20_000
    """Most light queues."""
    read_un_committed: NextStart[bool] = False
    """With SYNC_FLUSH, consumers see messages before they are on the disk."""
    duplication_enable: bool = False
    """A log that is written twice; slaves copy it instead."""
    put_consume_queue_data_by_file_channel: NoEffect[bool] = True
    """Writes queues through a file channel; they are written to mapped files."""
    enable_build_consume_queue_concurrently: NoEffect[bool] = False
    """Builds queues with several threads; dispatch is part of the append."""
    batch_dispatch_request_thread_pool_nums: NoEffect[int] = 16
    """Threads that build queues; dispatch is part of the append."""
    dispatch_from_sender_thread: NoEffect[bool] = False
    """Dispatches on the sender's thread; always so."""
    dispatch_cq_threads: NoEffect[int] = 10
    """Threads that write queues; dispatch is part of the append."""
    dispatch_cq_cache_num: NoEffect[int] = 4096
    """Entries that wait for those threads; dispatch is part of the append."""
    enable_async_reput: NoEffect[bool] = True
    """Dispatches with a thread that follows the log; dispatch is part of the append."""
    recheck_reput_offset_from_cq: NoEffect[bool] = False
    """Looks into queues where that thread goes on; dispatch is part of the append."""

    # Index
    message_index_enable: NextStart[bool] = True
    """Keeps the index of keys, without which messages are not found by key."""
    message_index_safe: NoEffect[bool] = False
    """A recovery rebuilds the index; it is always brought up to the log."""
    max_hash_slot_num: Fixed[Positive] = 5_000_000
    """Hash slots of an index file."""
    max_index_num: Fixed[Annotated[int, Meta(ge=2, le=_LARGEST)]] = 20_000_000
    """Entries of an index file."""
    max_msgs_num_batch: NextStart[Positive] = 64
    """Most messages that a query by key returns."""
    default_query_max_num: NextStart[Positive] = 32
    """Most messages that a query by unique key returns."""
    put_msg_index_hight_water: NoEffect[int] = 600_000
    """Waiting entries from which the index is skipped; there is no queue before the index."""

    # Reading
    max_filter_message_size: NextStart[Positive] = 16_000
    """Bytes of queue entries that one pull looks through for matching messages."""
    travel_cq_file_num_when_get_message: NextStart[Positive] = 1
    """Files of a consume queue that one pull looks through."""
    pull_batch_max_message_count: NoEffect[Positive] = 160
    """Most messages of a pull from a batch consume queue; topics with such queues are refused."""
    max_transfer_bytes_on_message_in_memory: NextStart[Positive] = 256 * 1024
    """Most bytes of a pull that is answered from memory."""
    max_transfer_count_on_message_in_memory: NextStart[Positive] = 32
    """Most messages of a pull that is answered from memory."""
    max_transfer_bytes_on_message_in_disk: NextStart[Positive] = 64 * 1024
    """Most bytes of a pull that is answered from the disk."""
    max_transfer_count_on_message_in_disk: NextStart[Positive] = 8
    """Most messages of a pull that is answered from the disk."""
    access_message_in_memory_max_ratio: NextStart[Percent] = 40
    """Percentage of the machine's memory that the newest part of the log is taken to be in."""
    access_message_in_memory_hot_ratio: NoEffect[Percent] = 26
    """Percentage of memory for batch consume queues; topics with such queues are refused."""
    offset_check_in_slave: NextStart[bool] = False
    """A replica corrects offsets that are out of range; for readers of a replica's files."""
    disk_fall_recorded: NoEffect[bool] = True
    """Statistics of how far pulls are behind; always so."""
    enable_batch_push: NoEffect[bool] = False
    """Sends entries of a DLedger group in batches; there is no such group."""
    cold_data_flow_control_enable: bool = False
    """Limits groups that read far behind: see `cgColdReadThreshold`."""
    cold_data_scan_enable: NoEffect[bool] = False
    """Looks for cold pages from time to time; what is cold is asked of each read."""
    timer_cold_data_check_interval_ms: NoEffect[Natural] = 60_000
    """How often cold pages are looked for in ms; what is cold is asked of each read."""
    sample_steps: NoEffect[Positive] = 32
    """Pages between two samples of that search; what is cold is asked of each read."""
    data_read_ahead_enable: bool = True
    """Lets the kernel read the log ahead."""
    mapped_file_swap_enable: NoEffect[bool] = True
    """Unmaps and maps files anew to free memory; the kernel takes cold pages back by itself."""
    commit_log_force_swap_map_interval: NoEffect[Long] = 43_200_000
    """How often commit log files are swapped by force in ms; the kernel frees cold pages."""
    commit_log_swap_map_interval: NoEffect[Long] = 3_600_000
    """How often commit log files are swapped in ms; the kernel frees cold pages."""
    commit_log_swap_map_reserve_file_num: NoEffect[int] = 100
    """Newest commit log files that are not swapped; the kernel frees cold pages."""
    logic_queue_force_swap_map_interval: NoEffect[Long] = 43_200_000
    """How often queue files are swapped by force in ms; the kernel frees cold pages."""
    logic_queue_swap_map_interval: NoEffect[Long] = 3_600_000
    """How often queue files are swapped in ms; the kernel frees cold pages."""
    logic_queue_swap_map_reserve_file_num: NoEffect[int] = 20
    """Newest queue files that are not swapped; the kernel frees cold pages."""
    clean_swaped_map_interval: NoEffect[Long] = 300_000
    """How often swapped files are let go in ms; the kernel frees cold pages."""

    # Retention
    file_reserved_time: Natural = 72
    """Hours that a commit log file is kept after its last message."""
    delete_when: str = "04"
    """Hours of the day at which expired files are deleted, such as `04` or `04;16`."""
    clean_resource_interval: NextStart[Positive] = 10_000
    """How often the store looks for files to delete, in ms."""
    delete_commit_log_files_interval: Natural = 100
    """Pause after each deleted file, in ms."""
    delete_consume_queue_files_interval: NoEffect[Natural] = 100
    """Pause after each deleted queue file in ms; they are small, and deleted together."""
    delete_file_batch_max: Positive = 10
    """Most commit log files that are deleted in one go."""
    max_batch_delete_files_num: NoEffect[Positive] = 50
    """Most queue files that are deleted in one go; they are deleted with the log."""
    disk_max_used_space_ratio: Percent = 75
    """Percentage of the disk from which expired files are deleted at any hour; 10 to 95 are used."""
    disk_space_clean_forcibly_ratio: Percent = 85
    """Percentage of the disk from which unexpired files are deleted, too; 30 to 85 are used."""
    disk_space_warning_level_ratio: Percent = 90
    """Percentage of the disk from which messages are refused; 35 to 90 are used."""
    clean_file_forcibly_enable: bool = True
    """Allows deleting unexpired files when the disk is full."""
    replicas_per_disk_partition: NoEffect[Positive] = 1
    """Brokers that share a disk; the disk as a whole is looked at."""
    logical_disk_space_clean_forcibly_threshold: NoEffect[Fraction] = 0.8
    """Share of a disk that several brokers use; the disk as a whole is looked at."""
    enable_clean_expired_offset: NoEffect[bool] = False
    """Drops offsets of expired queues; offsets of deleted topics and groups are dropped."""
    destroy_mapped_file_interval_forcibly: NoEffect[int] = field(
        name="destroyMapedFileIntervalForcibly", default=120_000
    )
    """Time in ms after which a file in use is removed by force; who reads a removed file keeps it."""
    redelete_hanged_file_interval: NoEffect[int] = 120_000
    """How often a file that could not be deleted is tried again in ms; every clean-up tries."""

    # Replication
    broker_role: Fixed[Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]] = "ASYNC_MASTER"
    """Role in a group of replicas: a master, one that waits for copies, or a slave."""
    ha_listen_port: Fixed[Port] = 0
    """Port for replicas, which name servers are told; 0 is the one after the main port."""
    ha_allowed_replicas: str = ""
    """Addresses and networks that may connect to the HA port; all if empty. A setting of CometMQ's own."""
    ha_master_address: Fixed[str | None] = None
    """Master that a slave follows; None is the one that name servers tell."""
    ha_send_heartbeat_interval: Positive = 5000
    """How often master and replica exchange heartbeats, in ms."""
    ha_housekeeping_interval: Positive = 20_000
    """Silence in ms after which master and replica part."""
    ha_transfer_batch_size: Positive = 32 * 1024
    """Bytes of the log that are transferred together."""
    ha_max_gap_not_in_sync: Natural = 256 * 1024 * 1024
    """Bytes that an in-sync replica may be behind."""
    ha_max_time_slave_not_catchup: NoEffect[Long] = 15_000
    """Time in ms that an in-sync replica may be behind; only controllers use it, and there are none."""
    ha_flow_control_enable: bool = False
    """Limits the transfer to replicas."""
    max_ha_transfer_byte_in_second: Long = 100 * 1024 * 1024
    """Bytes a second of that limit."""
    slave_timeout: Natural = 3000
    """How long a send waits for replicas, in ms."""
    max_slave_resend_length: NoEffect[Long] = 256 * 1024 * 1024
    """Bytes that a new master sends again; there is no fail-over."""
    sync_from_last_file: NoEffect[bool] = False
    """An empty replica starts at the last file; without a controller that is always so."""
    async_learner: bool = False
    """A replica that never counts as in sync; only controllers use it, and there are none."""
    sync_master_flush_offset_when_startup: NoEffect[bool] = False
    """A replica asks for the flushed offset first; here it always compares its log with the master's."""
    total_replicas: Positive = 1
    """Brokers of the group, for fail-over, which is not there yet."""
    in_sync_replicas: Positive = 1
    """Copies that a send waits for, with `SYNC_MASTER`; the master's own is one of them."""
    min_in_sync_replicas: Positive = 1
    """Copies without which sends are refused, with `SYNC_MASTER`."""
    all_ack_in_sync_state_set: bool = False
    """A send waits for all in-sync replicas; only controllers know these, and there are none."""
    enable_auto_in_sync_replicas: bool = False
    """Waits for as many copies as there are replicas in sync, at least `minInSyncReplicas`."""

    # Delayed messages
    message_delay_level: NextStart[str] = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    """Delays of the levels 1, 2 and so on."""
    enable_schedule_message_stats: NoEffect[bool] = True
    """Statistics of delayed messages; always so."""
    enable_schedule_async_deliver: NoEffect[bool] = False
    """Delivers delayed messages asynchronously; those of one turn are delivered together."""
    schedule_async_deliver_max_pending_limit: NoEffect[Positive] = 2000
    """Limit of such deliveries; those of one turn are delivered together."""
    schedule_async_deliver_max_resend_num2_blocked: NoEffect[Natural] = 3
    """Retries of such deliveries; what can never be put is set aside."""
    timer_wheel_enable: NextStart[bool] = True
    """Delivers messages at any time (timers); without it they and pop are refused."""
    mapped_file_size_timer_log: Fixed[FileSize] = 100 * 1024 * 1024
    """Size of a timer log file in bytes."""
    timer_precision_ms: Fixed[Positive] = 1000
    """Precision of timers: 1000, 500, 200 or 100 ms."""
    timer_roll_window_slot: NextStart[Positive] = 172_800
    """Slots after which a distant timer is put into the wheel anew."""
    timer_flush_interval_ms: NextStart[Positive] = 1000
    """How often timers are flushed, in ms."""
    timer_max_delay_sec: Positive = 259_200
    """Longest delay of a timer, and the longest time that a popped message is invisible, in seconds."""
    timer_congest_num_each_slot: Natural = _LARGEST
    """Timers of one slot from which further ones are refused."""
    timer_stop_enqueue: bool = False
    """Takes no timers out of their topic; for emergencies."""
    timer_stop_dequeue: bool = False
    """Delivers no timers; for emergencies."""
    timer_skip_unknown_error: NoEffect[bool] = False
    """Skips timers that fail; what can never be put is set aside."""
    timer_enable_retry_until_success: NoEffect[bool] = False
    """Repeats timers that fail; what can never be put is set aside."""
    timer_intercept_delay_level: NoEffect[bool] = False
    """Serves delay levels with timers; the delay levels have their own service."""
    timer_enable_check_metrics: bool = True
    """Counts waiting timers anew once a day."""
    timer_check_metrics_when: str = "05"
    """Hours of the day for that, such as `05` or `05;17`."""
    timer_metric_small_threshold: NoEffect[Natural] = 1_000_000
    """Counts below this are corrected at once; every count is corrected."""
    timer_progress_log_interval_ms: NoEffect[Natural] = 10_000
    """How often the progress of timers is logged, in ms; metrics have it."""
    disappear_time_after_start: NextStart[JavaInt] = -1
    """How long a started broker stays out of the routes and delivers no timers, in ms; -1 is not at all."""
    timer_warm_enable: NoEffect[bool] = False
    """Reads timer files ahead; the kernel does."""
    timer_get_message_thread_num: NoEffect[int] = 3
    """Threads that read timers; one event loop does this work."""
    timer_put_message_thread_num: NoEffect[int] = 3
    """Threads that deliver timers; one event loop does this work."""
    timer_enable_disruptor: NoEffect[bool] = False
    """Queue between those threads; one event loop does this work."""

    # Compacted topics
    enable_compaction: NoEffect[bool] = True
    """Compacts topics by key; topics with such a policy are refused."""
    compaction_mapped_file_size: NoEffect[Fixed[FileSize]] = 100 * 1024 * 1024
    """Size of a compacted log file; topics with such a policy are refused."""
    compaction_cq_mapped_file_size: NoEffect[Fixed[FileSize]] = 10 * 1024 * 1024
    """Size of a compacted queue file; topics with such a policy are refused."""
    compaction_schedule_internal: NoEffect[Positive] = 900_000
    """How often topics are compacted in ms; topics with such a policy are refused."""
    max_offset_map_size: NoEffect[Positive] = 100 * 1024 * 1024
    """Memory of a compaction in bytes; topics with such a policy are refused."""
    compaction_thread_num: NoEffect[int] = 6
    """Threads of a compaction; topics with such a policy are refused."""

    # DLedger and RocksDB
    enable_d_leger_commit_log: bool = field(name="enableDLegerCommitLog", default=False)
    """Keeps the log in a DLedger group; its log has another format."""
    store_path_d_ledger_commit_log: NoEffect[Fixed[str | None]] = field(
        name="storePathDLedgerCommitLog", default=None
    )
    """Folder of a DLedger log; there is none."""
    d_leger_group: NoEffect[Fixed[str | None]] = None
    """Name of a DLedger group; there is none."""
    d_leger_peers: NoEffect[Fixed[str | None]] = None
    """Members of a DLedger group; there is none."""
    d_leger_self_id: NoEffect[Fixed[str | None]] = None
    """Own id in a DLedger group; there is none."""
    preferred_leader_id: NoEffect[Fixed[str | None]] = None
    """Preferred leader of a DLedger group; there is none."""
    rocksdb_cq_double_write_enable: bool = field(name="rocksdbCQDoubleWriteEnable", default=False)
    """Writes queues also to RocksDB; nothing is kept in RocksDB."""
    bottom_most_compression_type_for_consume_queue_store: NoEffect[str] = "zstd"
    """Compression in RocksDB; nothing is kept in RocksDB."""
    rocksdb_compression_type: NoEffect[str] = "lz4"
    """Compression in RocksDB; nothing is kept in RocksDB."""
    rocksdb_flush_wal_frequency: NoEffect[int] = 1024
    """Writes between two flushes of RocksDB; nothing is kept in RocksDB."""
    rocksdb_wal_file_rolling_threshold: NoEffect[Long] = 1024 * 1024 * 1024
    """Size of a write-ahead log of RocksDB; nothing is kept in RocksDB."""
    clean_rocks_db_dirty_cq_interval_min: NoEffect[Long] = field(
        name="cleanRocksDBDirtyCQIntervalMin", default=60
    )
    """How often queues in RocksDB are cleaned, in minutes; nothing is kept in RocksDB."""
    stat_rocks_db_cq_interval_sec: NoEffect[Long] = field(name="statRocksDBCQIntervalSec", default=10)
    """How often RocksDB logs its state, in seconds; nothing is kept in RocksDB."""
    mem_table_flush_interval_ms: NoEffect[Long] = 3_600_000
    """How often RocksDB flushes its tables in ms; nothing is kept in RocksDB."""
    real_time_persist_rocks_db_config: NoEffect[bool] = field(
        name="realTimePersistRocksDBConfig", default=True
    )
    """Writes settings in RocksDB at once; nothing is kept in RocksDB."""
    enable_rocks_db_log: NoEffect[bool] = field(name="enableRocksDBLog", default=False)
    """Log of RocksDB; nothing is kept in RocksDB."""

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
        self.allowed_replicas  # noqa: B018 - raises if it cannot be read
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
    def allowed_replicas(self) -> tuple[Network, ...]:
        """The networks whose peers may connect to the HA port; all of them if there is none."""
        try:
            parts = (part.strip() for part in self.ha_allowed_replicas.split(PATH_SEPARATOR))
            return tuple(ip_network(part, strict=False) for part in parts if part)
        except ValueError as error:
            raise SettingsError(
                f"haAllowedReplicas = {self.ha_allowed_replicas!r} is not addresses or networks such as "
                f"10.0.0.2,10.1.0.0/16: {error}"
            ) from None

    @property
    def hot_percent(self) -> int:
        """The share of the memory in which the end of the log is likely to be; less on a slave, as with
        Apache."""
        lowered = 10 if self.broker_role == "SLAVE" else 0
        return max(self.access_message_in_memory_max_ratio - lowered, 0)

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
