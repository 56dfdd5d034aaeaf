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
from cometmq.model.settings import BlackListed, Fixed, Natural, Only, Port, Positive, refuse_unsupported
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
    Only(
        "brokerId",
        "0",
        "other ids than 0 are those of replicas, and this broker cannot be one; leave it out, and give each "
        "broker a brokerName of its own",
    ),
)

_END_OF_TIME_MS: Final = 253_402_300_000_000


class BrokerConfig(PortConfig, frozen=True, kw_only=True):
    """What the broker's part of `GET_BROKER_CONFIG` shows."""

    broker_config_path: BlackListed[str | None] = None
    rocketmq_home: BlackListed[str] = ""  # no effect
    namesrv_addr: str | None = None
    listen_port: Fixed[Port] = DEFAULT_PORT
    broker_ip1: Fixed[str] = field(name="brokerIP1", default_factory=local_address)
    broker_ip2: Fixed[str] = field(name="brokerIP2", default_factory=local_address)
    recover_concurrently: bool = False  # no effect
    broker_permission: Permission = 6
    default_topic_queue_nums: QueueCount = 8
    auto_create_topic_enable: bool = True
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    message_store_plug_in: str = ""
    msg_trace_topic_name: str = TRACE_TOPIC
    trace_topic_enable: bool = False
    send_message_thread_pool_nums: int = 4  # no effect
    put_message_future_thread_pool_nums: int = 4  # no effect
    pull_message_thread_pool_nums: Natural = 20  # no effect
    lite_pull_message_thread_pool_nums: Natural = 20  # no effect
    ack_message_thread_pool_nums: Natural = 16  # no effect
    process_reply_message_thread_pool_nums: Natural = 20  # no effect
    query_message_thread_pool_nums: Natural = 10  # no effect
    admin_broker_thread_pool_nums: Natural = 16  # no effect
    client_manage_thread_pool_nums: Natural = 32  # no effect
    consumer_manage_thread_pool_nums: Natural = 32  # no effect
    load_balance_processor_thread_pool_nums: Natural = 32  # no effect
    heartbeat_thread_pool_nums: Natural = 2  # no effect
    recover_thread_pool_nums: Natural = 32  # no effect
    end_transaction_thread_pool_nums: Natural = 12  # no effect
    flush_consumer_offset_interval: Positive = 5000
    flush_consumer_offset_history_interval: Natural = 60_000  # no effect
    reject_transaction_message: bool = False
    fetch_name_srv_addr_by_dns_lookup: bool = False
    fetch_namesrv_addr_by_address_server: bool = False
    send_thread_pool_queue_capacity: Positive = 10_000
    put_thread_pool_queue_capacity: Natural = 10_000  # no effect
    pull_thread_pool_queue_capacity: Natural = 100_000  # no effect: only shown
    lite_pull_thread_pool_queue_capacity: Natural = 100_000  # no effect: only shown
    ack_thread_pool_queue_capacity: Natural = 100_000  # no effect: only shown
    reply_thread_pool_queue_capacity: Natural = 10_000  # no effect
    query_thread_pool_queue_capacity: Natural = 20_000  # no effect: only shown
    client_manager_thread_pool_queue_capacity: Natural = 1_000_000  # no effect
    consumer_manager_thread_pool_queue_capacity: Natural = 1_000_000  # no effect
    heartbeat_thread_pool_queue_capacity: Natural = 50_000  # no effect
    end_transaction_pool_queue_capacity: Natural = 100_000  # no effect: only shown
    admin_broker_thread_pool_queue_capacity: Natural = 10_000  # no effect
    load_balance_thread_pool_queue_capacity: Natural = 100_000  # no effect
    long_polling_enable: bool = True
    short_polling_time_mills: PositiveLong = 1000
    notify_consumer_ids_changed_enable: bool = True
    high_speed_mode: bool = False  # no effect
    commercial_base_count: Natural = 1  # no effect
    commercial_size_per_msg: Natural = 4096  # no effect
    account_stats_enable: bool = True  # no effect
    account_stats_print_zero_values: bool = True  # no effect
    max_stats_idle_time_in_minutes: int = -1  # no effect
    transfer_msg_by_heap: bool = True  # no effect
    region_id: str = "DefaultRegion"
    register_broker_timeout_mills: Positive = 24_000
    send_heartbeat_timeout_millis: Positive = 1000
    slave_read_enable: bool = False
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: Long = 17_179_869_184
    broker_fast_failure_enable: bool = True  # no effect: requests wait in no queue
    wait_time_mills_in_send_queue: Long = 200  # no effect
    wait_time_mills_in_pull_queue: Long = 5000  # no effect
    wait_time_mills_in_lite_pull_queue: Long = 5000  # no effect
    wait_time_mills_in_heartbeat_queue: Long = 31_000  # no effect
    wait_time_mills_in_transaction_queue: Long = 3000  # no effect
    wait_time_mills_in_ack_queue: Long = 3000  # no effect
    wait_time_mills_in_admin_broker_queue: Long = 5000  # no effect
    start_accept_send_request_time_stamp: Long = 0
    trace_on: bool = True
    enable_calc_filter_bit_map: bool = False  # no effect: filters look at the properties
    reject_pull_consumer_enable: bool = False
    expect_consumer_num_use_filter: Natural = 32  # no effect
    max_error_rate_of_bloom_filter: Natural = 20  # no effect
    filter_data_clean_time_span: Long = 86_400_000
    filter_support_retry: bool = False
    enable_property_filter: bool = False
    compressed_register: bool = False
    force_register: bool = True
    register_name_server_period: Natural = 30_000
    update_name_server_addr_period: Positive = 120_000
    broker_heartbeat_interval: Positive = 1000
    broker_not_active_timeout_millis: PositiveLong = 10_000
    enable_net_work_flow_control: bool = False  # no effect
    enable_broadcast_offset_store: bool = True
    broadcast_offset_expire_second: PositiveLong = 120
    broadcast_offset_expire_max_second: PositiveLong = 300
    pop_polling_size: Natural = 1024
    pop_polling_map_size: Natural = 100_000  # no effect
    max_pop_polling_size: Long = 100_000
    revive_queue_num: Fixed[QueueCount] = 8
    revive_interval: Long = 1000  # no effect
    revive_max_slow: Long = 3  # no effect
    revive_scan_time: Long = 10_000  # no effect
    enable_skip_long_awaiting_ack: bool = False  # no effect
    revive_ack_wait_ms: Long = 180_000  # no effect
    enable_pop_log: bool = False  # no effect
    enable_pop_buffer_merge: bool = False  # no effect
    pop_ck_stay_buffer_time: Natural = 10_000  # no effect
    pop_ck_stay_buffer_time_out: Natural = 3000  # no effect
    pop_ck_max_buffer_size: Natural = 200_000  # no effect
    pop_ck_offset_max_queue_size: Natural = 20_000  # no effect
    enable_pop_batch_ack: bool = False  # no effect
    pop_long_polling_force_notify_interval: Long = 800
    enable_notify_before_pop_calculate_lag: bool = True  # no effect
    enable_notify_after_pop_order_lock_release: bool = True
    init_pop_offset_by_check_msg_in_mem: bool = True
    retrieve_message_from_pop_retry_topic_v1: bool = True
    enable_retry_topic_v2: bool = False
    pop_from_retry_probability: Percent = 20
    pop_consumer_fs_service_init: bool = field(name="popConsumerFSServiceInit", default=True)  # no effect
    pop_consumer_kv_service_log: bool = field(name="popConsumerKVServiceLog", default=False)  # no effect
    pop_consumer_kv_service_init: bool = field(name="popConsumerKVServiceInit", default=False)  # no effect
    pop_consumer_kv_service_enable: bool = field(  # no effect
        name="popConsumerKVServiceEnable", default=False
    )
    pop_revive_max_return_size_per_read: Natural = 16_384  # no effect
    pop_revive_max_attempt_times: Natural = 16  # no effect
    real_time_notify_consumer_change: bool = True
    lite_pull_message_enable: bool = True
    sync_broker_member_group_period: Natural = 1000  # no effect: there are no replicas
    load_balance_poll_name_server_interval: Long = 30_000
    clean_offline_broker_interval: Natural = 30_000  # no effect
    server_load_balancer_enable: bool = True
    default_message_request_mode: Literal["PULL", "POP"] = "PULL"
    default_pop_share_queue_num: int = -1
    transaction_time_out: Long = 6000
    transaction_check_max: Positive = 15
    transaction_check_interval: PositiveLong = 30_000
    transaction_metric_flush_interval: PositiveLong = 3000
    transaction_op_msg_max_size: Positive = 4096
    transaction_op_batch_interval: Natural = 3000
    acl_enable: bool = False
    store_reply_message_enable: bool = True
    enable_detail_stat: bool = True
    auto_delete_unused_stats: bool = True
    isolate_log_enable: bool = False  # no effect
    forward_timeout: Long = 3000  # no effect
    enable_slave_acting_master: bool = False
    enable_remote_escape: bool = False  # no effect: there are no replicas
    skip_pre_online: bool = False  # no effect: there are no replicas
    async_send_enable: bool = True  # no effect
    use_server_side_reset_offset: bool = True
    consumer_offset_update_version_step: Annotated[int, Meta(ge=1)] = 500
    delay_offset_update_version_step: Annotated[int, Meta(ge=1)] = 200
    lock_in_strict_mode: bool = False  # no effect: there are no replicas
    compatible_with_old_name_srv: bool = True
    enable_controller_mode: bool = False
    controller_addr: Fixed[str] = ""  # no effect: there is no controller
    fetch_controller_addr_by_dns_lookup: bool = False  # no effect
    sync_broker_metadata_period: Long = 5000  # no effect
    check_sync_state_set_period: Long = 5000  # no effect
    sync_controller_metadata_period: Long = 10_000  # no effect
    controller_heart_beat_timeout_mills: Long = 10_000  # no effect
    validate_system_topic_when_update_topic: bool = True
    broker_election_priority: Natural = 2_147_483_647  # no effect
    use_static_subscription: bool = False  # no effect
    metrics_exporter_type: Fixed[Literal["DISABLE", "OTLP_GRPC", "PROM", "LOG"]] = "DISABLE"
    metrics_otel_cardinality_limit: Natural = 50_000
    metrics_grpc_exporter_target: Fixed[str] = ""
    metrics_grpc_exporter_header: Fixed[str] = ""
    metric_grpc_exporter_time_out_in_mills: Fixed[PositiveLong] = 3000
    metric_grpc_exporter_interval_in_mills: Fixed[PositiveLong] = 60_000
    metric_logging_exporter_interval_in_mills: Fixed[PositiveLong] = 10_000
    metrics_prom_exporter_port: Fixed[Port] = 5557
    metrics_prom_exporter_host: Fixed[str] = ""
    metrics_label: str = ""
    metrics_in_delta: Fixed[bool] = False
    channel_expired_timeout: PositiveLong = 120_000
    subscription_expired_timeout: Long = 600_000  # no effect
    estimate_accumulation: bool = True  # no effect
    cold_ctr_strategy_enable: bool = False  # no effect: thresholds do not change by themselves
    use_pid_cold_ctr_strategy: bool = field(name="usePIDColdCtrStrategy", default=True)  # no effect
    cg_cold_read_threshold: Long = 3_145_728
    global_cold_read_threshold: Long = 104_857_600
    fetch_namesrv_addr_interval: PositiveLong = 10_000
    pop_response_return_actual_retry_topic: bool = False
    enable_single_topic_register: bool = False
    enable_mixed_message_type: bool = False
    enable_split_registration: bool = False
    pop_inflight_message_threshold: Long = 10_000
    enable_pop_message_threshold: bool = False
    enable_fast_channel_event_process: bool = False  # no effect
    print_channel_groups: bool = False  # no effect
    print_channel_groups_min_num: Natural = 5  # no effect
    split_registration_size: Natural = 800
    config_black_list: BlackListed[str] = "configBlackList;brokerConfigPath"
    skip_when_ck_re_put_reach_max_times: bool = field(  # no effect: what can never be put is set aside
        name="skipWhenCKRePutReachMaxTimes", default=False
    )
    append_ack_async: bool = False  # no effect
    append_ck_async: bool = False  # no effect
    clear_retry_topic_when_delete_topic: bool = True
    enable_lmq_stats: bool = False  # no effect
    config_manager_version: str = "v1"
    allow_recall_when_broker_not_writeable: bool = True
    recall_message_enable: bool = False
    enable_register_producer: bool = True
    enable_create_sys_group: bool = True
    broker_name: Fixed[str] = field(default_factory=_host_name)
    broker_cluster_name: Fixed[str] = "DefaultCluster"
    broker_id: Fixed[Long] = 0
    is_broker_container: Fixed[bool] = False  # no effect
    is_in_broker_container: Fixed[bool] = False  # no effect

    # Calls to name servers
    client_worker_threads: Natural = 4  # no effect
    client_callback_executor_threads: Natural = 2  # no effect
    client_oneway_semaphore_value: Natural = 65_535  # no effect
    client_async_semaphore_value: Natural = 65_535  # no effect
    connect_timeout_millis: Natural = 3000  # no effect: connecting may take 3 seconds
    channel_not_active_interval: Long = 60_000  # no effect
    is_scan_available_name_srv: bool = True  # no effect
    client_channel_max_idle_time_seconds: Natural = 120  # no effect
    client_socket_snd_buf_size: Natural = 0  # no effect
    client_socket_rcv_buf_size: Natural = 0  # no effect
    client_pooled_byte_buf_allocator_enable: bool = False  # no effect
    client_close_socket_if_timeout: bool = True  # no effect
    use_tls: bool = field(name="useTLS", default=False)
    socks_proxy_config: Fixed[str] = "{}"  # no effect
    disable_callback_executor: bool = False  # no effect
    disable_netty_worker_group: bool = False  # no effect
    max_reconnect_interval_time_seconds: Long = 60  # no effect
    enable_reconnect_for_go_away: bool = True  # no effect: always so
    reject_inconsistent_subscription: bool = False
    """Refuse a consumer whose subscriptions differ from those of its group, instead of only saying so."""
    max_auto_create_topics: Natural = 5_000
    """The limit from which no topic is made for a message any more."""
    max_topics: Positive = 200_000
    """The limit of topics, also for administrators."""
    max_auto_create_subscription_groups: Natural = 20_000
    """The limit from which no group is made for a consumer any more."""
    max_subscription_groups: Positive = 200_000
    """The limit of groups, also for administrators."""

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
