"""The settings of a broker: RocketMQ's property names and defaults.

Rules kept here:
- Every key that Apache's broker has is kept, shown and stored, so that a configuration moves between both
  unchanged. Those marked "no effect" size thread pools and sockets that do not exist here, because one event
  loop does that work, or shape how Apache's broker buffers and revives what was popped, which is done
  otherwise here.
- The store's own keys are in `store/config.py`; one file has both.
- A setting that no request may change is marked where it is declared: `BlackListed` if Apache refuses it,
  `Fixed` if it is a name, an address, a port, a folder or the size of a file.
"""

from __future__ import annotations

import socket
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from cometmq.broker.topics.names import is_for_clients, refuse_topic
from cometmq.model.errors import SettingsError
from cometmq.model.names import TRACE_TOPIC
from cometmq.model.settings import (
    BlackListed,
    Fixed,
    Natural,
    NextStart,
    NoEffect,
    Only,
    Port,
    Positive,
    refuse_unsupported,
)
from cometmq.model.topic import PERM_READ, PERM_WRITE
from cometmq.remoting.name_server_addresses import parse_addresses
from cometmq.remoting.server_settings import PortConfig

DEFAULT_PORT: Final = 10_911
MASTER_ID: Final = 0

Long = Annotated[int, Meta(ge=0, le=2**63 - 1)]
PositiveLong = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Permission = Annotated[int, Meta(ge=0, le=15)]
QueueCount = Annotated[int, Meta(ge=1, le=65_536)]


def local_address() -> str:
    """The address of this machine towards others; the loopback if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


UNSUPPORTED: Final = (
    Only(
        "enableControllerMode",
        "false",
        "there would be nobody to elect this broker; set it to false, and run it as a master of its own",
    ),
    Only(
        "configManagerVersion",
        "v1",
        "it keeps topics, groups and offsets in a database; choose v1, which keeps them in files",
    ),
    Only(
        "messageStorePlugIn",
        "",
        "what it keeps elsewhere would be missing; leave it out if all messages are in this broker's files",
    ),
    Only(
        "aclEnable",
        "false",
        "nobody would be asked for a key, and everybody would be let in; set it to false, and let only those "
        "reach the port who may: bindAddress, a firewall, tls.server.need.client.auth = require",
    ),
)

_END_OF_TIME_MS: Final = 253_402_300_000_000


class BrokerConfig(PortConfig, frozen=True, kw_only=True):
    """What the broker's part of `GET_BROKER_CONFIG` shows."""

    broker_config_path: BlackListed[str | None] = None
    """File in which settings changed by request are kept: that of `-c`."""
    rocketmq_home: NoEffect[BlackListed[str]] = ""
    """Apache's installation folder; nothing is looked for there."""
    namesrv_addr: str | None = None
    """Name servers to register with, `host:port` separated by `;`."""
    listen_port: Fixed[Port] = DEFAULT_PORT
    """Main port; the fast one for clients that use the VIP channel is two below. 0 takes free ports."""
    broker_ip1: Fixed[str] = field(name="brokerIP1", default_factory=local_address)
    """Address that name servers give to clients."""
    broker_ip2: Fixed[str] = field(name="brokerIP2", default_factory=local_address)
    """Address that name servers give to replicas; empty is that of `brokerIP1`."""
    recover_concurrently: NoEffect[bool] = False
    """Recovers queues with several threads; a recovery reads only what is after the checkpoint."""
    broker_permission: Permission = 6
    """What the broker allows: 2 writes, 4 reads, 6 both. Name servers announce topics accordingly."""
    default_topic_queue_nums: NextStart[QueueCount] = 8
    """Queues of the default topic `TBW102`, and so the most that a topic made for a message gets."""
    auto_create_topic_enable: bool = True
    """A message to an unknown topic makes it. Off takes effect at once, on when the default topic `TBW102` is
    there: at the next start."""
    cluster_topic_enable: NextStart[bool] = True
    """Topics may be made like the topic that is named as the cluster."""
    broker_topic_enable: NextStart[bool] = True
    """Topics may be made like the topic that is named as the broker."""
    auto_create_subscription_group: bool = True
    """An unknown group is made when it consumes."""
    message_store_plug_in: str = ""
    """Classes that keep messages elsewhere; this broker has only its own store."""
    msg_trace_topic_name: str = TRACE_TOPIC
    """Topic that traces of messages are sent to."""
    trace_topic_enable: NextStart[bool] = False
    """Makes the trace topic at the start."""
    send_message_thread_pool_nums: NoEffect[int] = 4
    """Threads for sends; one event loop does this work."""
    put_message_future_thread_pool_nums: NoEffect[int] = 4
    """Threads for answers to sends; one event loop does this work."""
    pull_message_thread_pool_nums: NoEffect[Natural] = 20
    """Threads for pulls; one event loop does this work."""
    lite_pull_message_thread_pool_nums: NoEffect[Natural] = 20
    """Threads for lite pulls; one event loop does this work."""
    ack_message_thread_pool_nums: NoEffect[Natural] = 16
    """Threads for acknowledgements; one event loop does this work."""
    process_reply_message_thread_pool_nums: NoEffect[Natural] = 20
    """Threads for replies; one event loop does this work."""
    query_message_thread_pool_nums: NoEffect[Natural] = 10
    """Threads for queries; one event loop does this work."""
    admin_broker_thread_pool_nums: NoEffect[Natural] = 16
    """Threads for administration; one event loop does this work."""
    client_manage_thread_pool_nums: NoEffect[Natural] = 32
    """Threads for clients; one event loop does this work."""
    consumer_manage_thread_pool_nums: NoEffect[Natural] = 32
    """Threads for offsets and members of groups; one event loop does this work."""
    load_balance_processor_thread_pool_nums: NoEffect[Natural] = 32
    """Threads for queue assignments; one event loop does this work."""
    heartbeat_thread_pool_nums: NoEffect[Natural] = 2
    """Threads for heartbeats; one event loop does this work."""
    recover_thread_pool_nums: NoEffect[Natural] = 32
    """Threads for recovery; one event loop does this work."""
    end_transaction_thread_pool_nums: NoEffect[Natural] = 12
    """Threads for ends of transactions; one event loop does this work."""
    flush_consumer_offset_interval: NextStart[Positive] = 5000
    """How often consumer offsets are written to the disk, in ms."""
    flush_consumer_offset_history_interval: NoEffect[Natural] = 60_000
    """How often old brokers kept a history of offsets, in ms; there is none."""
    reject_transaction_message: bool = False
    """Refuses half messages, and so transactions."""
    fetch_name_srv_addr_by_dns_lookup: bool = False
    """Looks up the names in `namesrvAddr` in DNS, and registers with every address behind them."""
    fetch_namesrv_addr_by_address_server: bool = False
    """Without `namesrvAddr`, asks the address server at `COMETMQ_NAMESRV_DOMAIN` for name servers."""
    send_thread_pool_queue_capacity: Positive = 10_000
    """Sends that may wait for their flush; more are refused with code 2, and clients try another broker."""
    put_thread_pool_queue_capacity: NoEffect[Natural] = 10_000
    """Queue before the threads for answers to sends; requests wait in no queue here."""
    pull_thread_pool_queue_capacity: NoEffect[Natural] = 100_000
    """Queue before the threads for pulls; only shown in the runtime information: requests wait in no queue
    here."""
    lite_pull_thread_pool_queue_capacity: NoEffect[Natural] = 100_000
    """Queue before the threads for lite pulls; only shown in the runtime information: requests wait in no
    queue here."""
    ack_thread_pool_queue_capacity: NoEffect[Natural] = 100_000
    """Queue before the threads for acknowledgements; only shown in the runtime information: requests wait in
    no queue here."""
    reply_thread_pool_queue_capacity: NoEffect[Natural] = 10_000
    """Queue before the threads for replies; requests wait in no queue here."""
    query_thread_pool_queue_capacity: NoEffect[Natural] = 20_000
    """Queue before the threads for queries; only shown in the runtime information: requests wait in no queue
    here."""
    client_manager_thread_pool_queue_capacity: NoEffect[Natural] = 1_000_000
    """Queue before the threads for clients; requests wait in no queue here."""
    consumer_manager_thread_pool_queue_capacity: NoEffect[Natural] = 1_000_000
    """Queue before the threads for offsets and members of groups; requests wait in no queue here."""
    heartbeat_thread_pool_queue_capacity: NoEffect[Natural] = 50_000
    """Queue before the threads for heartbeats; requests wait in no queue here."""
    end_transaction_pool_queue_capacity: NoEffect[Natural] = 100_000
    """Queue before the threads for ends of transactions; only shown in the runtime information: requests wait
    in no queue here."""
    admin_broker_thread_pool_queue_capacity: NoEffect[Natural] = 10_000
    """Queue before the threads for administration; requests wait in no queue here."""
    load_balance_thread_pool_queue_capacity: NoEffect[Natural] = 100_000
    """Queue before the threads for queue assignments; requests wait in no queue here."""
    long_polling_enable: bool = True
    """Holds a pull that finds nothing as long as the client allows; otherwise for `shortPollingTimeMills`."""
    short_polling_time_mills: PositiveLong = 1000
    """How long a pull is held without long polling, in ms."""
    notify_consumer_ids_changed_enable: bool = True
    """Tells the members of a group that others joined or left."""
    high_speed_mode: NoEffect[bool] = False
    """A switch that Apache's broker does not use either."""
    commercial_base_count: NoEffect[Natural] = 1
    """Unit of commercial statistics; there are none."""
    commercial_size_per_msg: NoEffect[Natural] = 4096
    """Size of a message in commercial statistics; there are none."""
    account_stats_enable: NoEffect[bool] = True
    """Statistics per account; there are no accounts."""
    account_stats_print_zero_values: NoEffect[bool] = True
    """Shows zeros in statistics per account; there are no accounts."""
    max_stats_idle_time_in_minutes: NoEffect[int] = -1
    """Drops idle statistics; here those of deleted topics and groups are dropped."""
    transfer_msg_by_heap: NoEffect[bool] = True
    """Copies messages to the heap before sending; here they are sent from the mapped files."""
    region_id: NextStart[str] = "DefaultRegion"
    """Region in answers to sends, which clients put into traces."""
    register_broker_timeout_mills: Positive = 24_000
    """How long a registration with a name server may take, in ms."""
    send_heartbeat_timeout_millis: Positive = 1000
    """How long a heartbeat to a name server may take, in ms."""
    slave_read_enable: bool = False
    """Suggests reading from a replica to consumers that are far behind."""
    disable_consume_if_consumer_read_slowly: bool = False
    """Disables a group that is behind by more than `consumerFallbehindThreshold`."""
    consumer_fallbehind_threshold: Long = 17_179_869_184
    """Bytes of the log that a group may be behind."""
    broker_fast_failure_enable: NoEffect[bool] = True
    """Refuses requests that waited too long in a queue; requests wait in no queue here."""
    wait_time_mills_in_send_queue: NoEffect[Long] = 200
    """Age in ms at which a send that waits in a queue is refused; requests wait in no queue here."""
    wait_time_mills_in_pull_queue: NoEffect[Long] = 5000
    """Age in ms at which a pull that waits in a queue is refused; requests wait in no queue here."""
    wait_time_mills_in_lite_pull_queue: NoEffect[Long] = 5000
    """Age in ms at which a lite pull that waits in a queue is refused; requests wait in no queue here."""
    wait_time_mills_in_heartbeat_queue: NoEffect[Long] = 31_000
    """Age in ms at which a heartbeat that waits in a queue is refused; requests wait in no queue here."""
    wait_time_mills_in_transaction_queue: NoEffect[Long] = 3000
    """Age in ms at which the end of a transaction that waits in a queue is refused; requests wait in no queue
    here."""
    wait_time_mills_in_ack_queue: NoEffect[Long] = 3000
    """Age in ms at which an acknowledgement that waits in a queue is refused; requests wait in no queue here.
    """
    wait_time_mills_in_admin_broker_queue: NoEffect[Long] = 5000
    """Age in ms at which an administrative request that waits in a queue is refused; requests wait in no
    queue here."""
    start_accept_send_request_time_stamp: Long = 0
    """Time in ms since 1970 before which sends are refused; 0 accepts them at once."""
    trace_on: NextStart[bool] = True
    """Answers to sends tell clients to trace, if they have tracing switched on."""
    enable_calc_filter_bit_map: NoEffect[bool] = False
    """Bloom filters in queue entries; filters here look at the properties."""
    reject_pull_consumer_enable: bool = False
    """Refuses consumers that pull by themselves (CONSUME_ACTIVELY); push consumers are served."""
    expect_consumer_num_use_filter: NoEffect[Natural] = 32
    """Consumers that the Bloom filters are sized for; there are none."""
    max_error_rate_of_bloom_filter: NoEffect[Natural] = 20
    """Error rate of the Bloom filters in percent; there are none."""
    filter_data_clean_time_span: Long = 86_400_000
    """How long the SQL92 filter of a group without members is kept, in ms."""
    filter_support_retry: bool = False
    """Applies the filters of a group to its retry topic, too."""
    enable_property_filter: bool = False
    """Allows SQL92 filters."""
    compressed_register: bool = False
    """Compresses registrations with name servers."""
    force_register: bool = True
    """Registers every period, also if a name server knows everything already."""
    register_name_server_period: Natural = 30_000
    """How often to register, in ms; 10,000 to 60,000 are used."""
    update_name_server_addr_period: Positive = 120_000
    """How often names in `namesrvAddr` are looked up in DNS, in ms."""
    broker_heartbeat_interval: Positive = 1000
    """How often name servers get a heartbeat with `enableSlaveActingMaster`, in ms."""
    broker_not_active_timeout_millis: PositiveLong = 10_000
    """Silence in ms after which name servers drop this broker, with `enableSlaveActingMaster`."""
    enable_net_work_flow_control: NoEffect[bool] = False
    """Refuses pulls over a connection that takes no bytes; such a connection is not read here."""
    enable_broadcast_offset_store: bool = True
    """Keeps offsets of broadcasting clients that a proxy serves."""
    broadcast_offset_expire_second: PositiveLong = 120
    """Seconds of silence after which the offset of an offline client is forgotten."""
    broadcast_offset_expire_max_second: PositiveLong = 300
    """Seconds of silence after which the offset of an online client is forgotten."""
    pop_polling_size: Natural = 1024
    """Pops that may be held for one group, topic and queue."""
    pop_polling_map_size: NoEffect[Natural] = 100_000
    """Size of the table of held pops; the table grows by need."""
    max_pop_polling_size: Long = 100_000
    """Pops that may be held in all."""
    revive_queue_num: Fixed[QueueCount] = 8
    """Queues of the revive topic, which has what was popped and not acknowledged."""
    revive_interval: NoEffect[Long] = 1000
    """Pause between scans of the revive topic in ms; timers replace the scans."""
    revive_max_slow: NoEffect[Long] = 3
    """Waits of a slow revival; timers replace the scans."""
    revive_scan_time: NoEffect[Long] = 10_000
    """Longest scan of the revive topic in ms; timers replace the scans."""
    enable_skip_long_awaiting_ack: NoEffect[bool] = False
    """Skips acknowledgements that wait long; timers replace the scans."""
    revive_ack_wait_ms: NoEffect[Long] = 180_000
    """How long a scan waits for an acknowledgement in ms; timers replace the scans."""
    enable_pop_log: NoEffect[bool] = False
    """Logs every pop; `--log-level debug` says what happens here."""
    enable_pop_buffer_merge: NoEffect[bool] = False
    """Merges acknowledgements in memory first; each is written at once here."""
    pop_ck_stay_buffer_time: NoEffect[Natural] = 10_000
    """Time in the merge buffer in ms; there is no such buffer."""
    pop_ck_stay_buffer_time_out: NoEffect[Natural] = 3000
    """Rest of the time in the merge buffer in ms; there is no such buffer."""
    pop_ck_max_buffer_size: NoEffect[Natural] = 200_000
    """Size of the merge buffer; there is no such buffer."""
    pop_ck_offset_max_queue_size: NoEffect[Natural] = 20_000
    """Offsets in the merge buffer; there is no such buffer."""
    enable_pop_batch_ack: NoEffect[bool] = False
    """Joins acknowledgements in the merge buffer; those of one request are always joined."""
    pop_long_polling_force_notify_interval: Long = 800
    """Every so many messages of a queue wake held pops, whether their filter matches or not; 0 is never."""
    enable_notify_before_pop_calculate_lag: NoEffect[bool] = True
    """Wakes held pops before the lag is computed; they are woken when a message comes."""
    enable_notify_after_pop_order_lock_release: bool = True
    """Wakes held pops of an orderly group when a queue is free again."""
    init_pop_offset_by_check_msg_in_mem: bool = True
    """A new pop group starts at the first message if it is still in memory, otherwise at the last."""
    retrieve_message_from_pop_retry_topic_v1: bool = True
    """With `enableRetryTopicV2`, pops also read the retry topics with the older names."""
    enable_retry_topic_v2: bool = False
    """Names retry topics of pop groups so that group and topic can be told apart."""
    pop_from_retry_probability: Percent = 20
    """Percentage of pops that look at the retry topic first."""
    pop_consumer_fs_service_init: NoEffect[bool] = field(name="popConsumerFSServiceInit", default=True)
    """Prepares the pop service on files; it is the only one here."""
    pop_consumer_kv_service_log: NoEffect[bool] = field(name="popConsumerKVServiceLog", default=False)
    """Logs the pop service on RocksDB; nothing is kept in RocksDB."""
    pop_consumer_kv_service_init: NoEffect[bool] = field(name="popConsumerKVServiceInit", default=False)
    """Prepares the pop service on RocksDB; nothing is kept in RocksDB."""
    pop_consumer_kv_service_enable: NoEffect[bool] = field(name="popConsumerKVServiceEnable", default=False)
    """Uses the pop service on RocksDB; nothing is kept in RocksDB, and pops are kept in the revive topic."""
    pop_revive_max_return_size_per_read: NoEffect[Natural] = 16_384
    """Bytes of one read of the pop service on RocksDB; nothing is kept in RocksDB."""
    pop_revive_max_attempt_times: NoEffect[Natural] = 16
    """Attempts of the pop service on RocksDB; nothing is kept in RocksDB."""
    real_time_notify_consumer_change: bool = True
    """Tells members of changes at once; otherwise changes of a short while are told together."""
    lite_pull_message_enable: bool = True
    """Allows lite pull requests."""
    sync_broker_member_group_period: NoEffect[Natural] = 1000
    """How often replicas are looked for in ms; no slave acts as the master yet."""
    load_balance_poll_name_server_interval: Long = 30_000
    """How old a route for queue assignments may be, in ms."""
    clean_offline_broker_interval: NoEffect[Natural] = 30_000
    """How often lost replicas are dropped in ms; no slave acts as the master yet."""
    server_load_balancer_enable: bool = True
    """The broker assigns queues to consumers that ask for it; off, each gets all queues."""
    default_message_request_mode: Literal["PULL", "POP"] = "PULL"
    """Whether groups that nobody has set pull or pop."""
    default_pop_share_queue_num: int = -1
    """How many members after it a client pops the queues of, too, when groups pop by default; -1 is all."""
    transaction_time_out: Long = 6000
    """Age in ms from which a half message is checked with its producer."""
    transaction_check_max: Positive = 15
    """Checks after which a transaction that nobody decides is given up."""
    transaction_check_interval: PositiveLong = 30_000
    """Pause between rounds of checks, in ms."""
    transaction_metric_flush_interval: NextStart[PositiveLong] = 3000
    """How often the counts of half messages are saved, in ms."""
    transaction_op_msg_max_size: Positive = 4096
    """Bytes of decided transactions that are written together."""
    transaction_op_batch_interval: Natural = 3000
    """How long decided transactions are gathered, in ms."""
    acl_enable: bool = False
    """RocketMQ's access control of before 5.3; there is none yet."""
    store_reply_message_enable: bool = True
    """Keeps replies in the reply topic."""
    enable_detail_stat: bool = True
    """Statistics per queue, beside those per topic and group."""
    auto_delete_unused_stats: bool = True
    """Drops the statistics of deleted groups."""
    isolate_log_enable: NoEffect[bool] = False
    """Log files per broker of a container; there is no container."""
    forward_timeout: NoEffect[Long] = 3000
    """Time-out of requests that are forwarded, in ms; none are."""
    enable_slave_acting_master: bool = False
    """Sends heartbeats, so that name servers notice a lost broker within seconds."""
    enable_remote_escape: NoEffect[bool] = False
    """Sends on to other brokers while a slave acts as the master; none does yet."""
    skip_pre_online: NoEffect[bool] = False
    """Skips the handshake with replicas at the start; no slave acts as the master yet."""
    async_send_enable: NoEffect[bool] = True
    """Answers sends asynchronously; always so."""
    use_server_side_reset_offset: bool = True
    """The broker resets offsets of groups itself, also those of offline members."""
    consumer_offset_update_version_step: NextStart[Annotated[int, Meta(ge=1)]] = 500
    """Changed offsets until their file gets a new version."""
    delay_offset_update_version_step: NextStart[Annotated[int, Meta(ge=1)]] = 200
    """Changed offsets of delay levels until their file gets a new version."""
    lock_in_strict_mode: NoEffect[bool] = False
    """Locks queues also on replicas; the locks are the master's alone."""
    compatible_with_old_name_srv: bool = True
    """Sends heartbeats that name servers before 5.0 understand."""
    enable_controller_mode: bool = False
    """Lets a controller elect this broker; there is no controller yet."""
    controller_addr: NoEffect[Fixed[str]] = ""
    """Controllers; there is none yet."""
    fetch_controller_addr_by_dns_lookup: NoEffect[bool] = False
    """Looks up controllers in DNS; there is none yet."""
    sync_broker_metadata_period: NoEffect[Long] = 5000
    """How often metadata goes to the controller in ms; there is none yet."""
    check_sync_state_set_period: NoEffect[Long] = 5000
    """How often the in-sync set is checked in ms; there is none yet."""
    sync_controller_metadata_period: NoEffect[Long] = 10_000
    """How often the controller is asked in ms; there is none yet."""
    controller_heart_beat_timeout_mills: NoEffect[Long] = 10_000
    """Silence in ms after which the controller drops a broker; there is none yet."""
    validate_system_topic_when_update_topic: bool = True
    """Refuses to create or change system topics."""
    broker_election_priority: NoEffect[Natural] = 2_147_483_647
    """Priority in the controller's elections; there is none yet."""
    use_static_subscription: NoEffect[bool] = False
    """Takes the topics of a group from its configuration to count its lag; lag is counted from offsets."""
    metrics_exporter_type: Fixed[Literal["DISABLE", "OTLP_GRPC", "PROM", "LOG"]] = "DISABLE"
    """Serves metrics and health over HTTP (PROM), sends them (OTLP_GRPC), or logs them (LOG)."""
    metrics_otel_cardinality_limit: Natural = 50_000
    """Series of one metric; further ones are left out and counted."""
    metrics_grpc_exporter_target: Fixed[str] = ""
    """Collector that metrics are sent to."""
    metrics_grpc_exporter_header: Fixed[str] = ""
    """Headers for the collector, `key:value` separated by commas."""
    metric_grpc_exporter_time_out_in_mills: Fixed[PositiveLong] = 3000
    """How long sending metrics may take, in ms."""
    metric_grpc_exporter_interval_in_mills: Fixed[PositiveLong] = 60_000
    """How often metrics are sent, in ms."""
    metric_logging_exporter_interval_in_mills: Fixed[PositiveLong] = 10_000
    """How often metrics are logged, in ms."""
    metrics_prom_exporter_port: Fixed[Port] = 5557
    """Port of `/metrics`, `/health` and `/ready`; 0 takes a free one."""
    metrics_prom_exporter_host: Fixed[str] = ""
    """Address of that port; empty is `bindAddress`."""
    metrics_label: str = ""
    """Further labels of all metrics, `key:value` separated by commas."""
    metrics_in_delta: Fixed[bool] = False
    """Sends differences instead of totals to the collector."""
    channel_expired_timeout: PositiveLong = 120_000
    """Time without heartbeats in ms after which a client is dropped and its connection closed."""
    subscription_expired_timeout: NoEffect[Long] = 600_000
    """Age in ms at which a subscription is dropped; one lasts as long as a member has it."""
    estimate_accumulation: NoEffect[bool] = True
    """Estimates the lag of filtered groups; lag is counted from offsets."""
    cold_ctr_strategy_enable: NoEffect[bool] = False
    """Changes thresholds of cold reads by itself; they stay as set."""
    use_pid_cold_ctr_strategy: NoEffect[bool] = field(name="usePIDColdCtrStrategy", default=True)
    """Changes thresholds of cold reads by a PID controller; they stay as set."""
    cg_cold_read_threshold: Long = 3_145_728
    """Cold bytes that a group may read in a time span, with `coldDataFlowControlEnable`."""
    global_cold_read_threshold: Long = 104_857_600
    """Cold bytes that all groups may read in a time span, with `coldDataFlowControlEnable`."""
    fetch_namesrv_addr_interval: PositiveLong = 10_000
    """How often the address server is asked, in ms."""
    pop_response_return_actual_retry_topic: bool = False
    """Popped retries carry the name of the retry topic instead of the original one."""
    enable_single_topic_register: bool = False
    """Tells name servers a changed topic by itself instead of a registration."""
    enable_mixed_message_type: bool = False
    """Topics may have the type MIXED."""
    enable_split_registration: bool = False
    """Splits a registration of many topics."""
    pop_inflight_message_threshold: Long = 10_000
    """Messages of a queue that a group may have popped and not acknowledged."""
    enable_pop_message_threshold: bool = False
    """Applies `popInflightMessageThreshold`."""
    enable_fast_channel_event_process: NoEffect[bool] = False
    """Finds clients of closed connections by an index; always so."""
    print_channel_groups: NoEffect[bool] = False
    """Logs the groups of a connection; `cometmq group` shows them."""
    print_channel_groups_min_num: NoEffect[Natural] = 5
    """Groups from which a connection is logged; `cometmq group` shows them."""
    split_registration_size: Natural = 800
    """Topics in one part of a split registration."""
    config_black_list: BlackListed[str] = "configBlackList;brokerConfigPath"
    """Keys that no request may change, separated by `;`."""
    skip_when_ck_re_put_reach_max_times: NoEffect[bool] = field(
        name="skipWhenCKRePutReachMaxTimes", default=False
    )
    """Drops what cannot be revived; it is set aside here, and `cometmq store set-aside` shows it."""
    append_ack_async: NoEffect[bool] = False
    """Writes acknowledgements asynchronously; they are answered as `flushDiskType` says."""
    append_ck_async: NoEffect[bool] = False
    """Writes check points of pops asynchronously; they are answered as `flushDiskType` says."""
    clear_retry_topic_when_delete_topic: bool = True
    """Deleting a topic also deletes the retry topics that pop groups have for it."""
    enable_lmq_stats: NoEffect[bool] = False
    """Statistics of light queues; there are none."""
    config_manager_version: str = "v1"
    """How topics, groups and offsets are kept: v1 is JSON files."""
    allow_recall_when_broker_not_writeable: bool = True
    """Delayed messages can be recalled also while the broker takes no writes."""
    recall_message_enable: bool = False
    """Allows recalling delayed messages."""
    enable_register_producer: bool = True
    """Remembers producers, so that they can be shown; off only together with `rejectTransactionMessage`."""
    enable_create_sys_group: bool = True
    """Makes system groups even without `autoCreateSubscriptionGroup`."""
    broker_name: Fixed[str] = field(default_factory=_host_name)
    """Name of the broker in routes; brokers with different names share the topics of a cluster."""
    broker_cluster_name: Fixed[str] = "DefaultCluster"
    """Cluster that the broker belongs to."""
    broker_id: Fixed[Long] = 0
    """0 is a master; other ids are replicas, which are not there yet."""
    is_broker_container: NoEffect[Fixed[bool]] = False
    """Runs several brokers in one process; `cometmq standalone --brokers` starts processes."""
    is_in_broker_container: NoEffect[Fixed[bool]] = False
    """This broker runs in a container of brokers; there is no container."""

    # Calls to name servers
    client_worker_threads: NoEffect[Natural] = 4
    """Threads for calls to name servers; one event loop does this work."""
    client_callback_executor_threads: NoEffect[Natural] = 2
    """Threads for callbacks of calls; one event loop does this work."""
    client_oneway_semaphore_value: NoEffect[Natural] = 65_535
    """One-way calls in flight; a broker makes few calls."""
    client_async_semaphore_value: NoEffect[Natural] = 65_535
    """Asynchronous calls in flight; a broker makes few calls."""
    connect_timeout_millis: NoEffect[Natural] = 3000
    """Time to connect in ms; it is 3 seconds."""
    channel_not_active_interval: NoEffect[Long] = 60_000
    """Age in ms at which an inactive connection is checked; lost ones are noticed at once."""
    is_scan_available_name_srv: NoEffect[bool] = True
    """Looks for reachable name servers; each is registered with on its own."""
    client_channel_max_idle_time_seconds: NoEffect[Natural] = 120
    """Seconds after which an idle connection to a name server is closed; it stays open."""
    client_socket_snd_buf_size: NoEffect[Natural] = 0
    """Send buffer of a socket; the kernel sizes it."""
    client_socket_rcv_buf_size: NoEffect[Natural] = 0
    """Receive buffer of a socket; the kernel sizes it."""
    client_pooled_byte_buf_allocator_enable: NoEffect[bool] = False
    """Netty's pool of buffers; there is no Netty here."""
    client_close_socket_if_timeout: NoEffect[bool] = True
    """Closes a connection after a time-out; the next call decides."""
    use_tls: NextStart[bool] = field(name="useTLS", default=False)
    """Calls name servers over TLS; the same as `tls.enable`."""
    socks_proxy_config: NoEffect[Fixed[str]] = "{}"
    """SOCKS proxies for calls; name servers are called directly."""
    disable_callback_executor: NoEffect[bool] = False
    """Runs callbacks on the network threads; there are none."""
    disable_netty_worker_group: NoEffect[bool] = False
    """Does without a group of Netty's threads; there is no Netty here."""
    max_reconnect_interval_time_seconds: NoEffect[Long] = 60
    """Longest pause between attempts to connect; every call tries."""
    enable_reconnect_for_go_away: NoEffect[bool] = True
    """Connects anew when a server says that it leaves; always so."""
    reject_inconsistent_subscription: bool = False
    """Refuses a consumer whose subscriptions differ from those of its group, instead of only saying so."""
    max_auto_create_topics: Natural = 5_000
    """Topics from which none is made for a message any more."""
    max_topics: Positive = 200_000
    """Most topics, also for administrators."""
    max_auto_create_subscription_groups: Natural = 20_000
    """Groups from which none is made for a consumer any more."""
    max_subscription_groups: Positive = 200_000
    """Most groups, also for administrators."""

    def __post_init__(self) -> None:
        for key, value in (("brokerName", self.broker_name), ("brokerClusterName", self.broker_cluster_name)):
            if not value.strip():
                raise SettingsError(f"{key} is empty; clients find a broker by its name")
        refuse_unsupported(self, UNSUPPORTED)
        trace_topic = self.msg_trace_topic_name
        if trace_topic != TRACE_TOPIC and (refuse_topic(trace_topic) or not is_for_clients(trace_topic)):
            raise SettingsError(f"msgTraceTopicName = {trace_topic!r} is no topic that clients may send to")
        if self.start_accept_send_request_time_stamp > _END_OF_TIME_MS:
            raise SettingsError(
                f"startAcceptSendRequestTimeStamp = {self.start_accept_send_request_time_stamp} is not in "
                "milliseconds; give a time before the year 10000"
            )
        try:
            parse_addresses(self.namesrv_addr or "")
        except SettingsError as error:
            raise SettingsError(f"namesrvAddr: {error}") from None
        if self.enable_slave_acting_master and not (
            self.broker_heartbeat_interval < self.broker_not_active_timeout_millis
        ):
            raise SettingsError(
                f"brokerHeartbeatInterval = {self.broker_heartbeat_interval} is not below "
                f"brokerNotActiveTimeoutMillis = {self.broker_not_active_timeout_millis}: name servers would "
                "drop this broker between two heartbeats; make the interval shorter"
            )

    @property
    def is_writable(self) -> bool:
        return self.broker_permission & PERM_WRITE != 0

    @property
    def is_readable(self) -> bool:
        return self.broker_permission & PERM_READ != 0

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers, in the order given."""
        return parse_addresses(self.namesrv_addr or "")

    @property
    def register_period_s(self) -> float:
        """How often to register, kept within reason."""
        return max(10_000, min(self.register_name_server_period, 60_000)) / 1000
