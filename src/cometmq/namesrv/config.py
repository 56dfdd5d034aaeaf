"""The settings of a name server: RocketMQ's property names and defaults.

Keys for Apache's thread pools and sockets are kept, shown and stored, so that a configuration moves between
both servers unchanged; those marked "no effect" have none here. No request may change a `BlackListed` key,
which Apache refuses, nor a `Fixed` one: a name, an address or a port.
"""

from __future__ import annotations

from typing import Final

import msgspec

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
from cometmq.remoting.server_settings import PortConfig, ServerSettings

DEFAULT_PORT: Final = 9876

UNSUPPORTED: Final = (
    Only(
        "enableControllerInNamesrv",
        "false",
        "nobody would elect masters; set it to false, and run Apache's controller if its brokers need one",
    ),
)


class NamesrvConfig(PortConfig, frozen=True, kw_only=True):
    """The settings of `GET_NAMESRV_CONFIG`."""

    rocketmq_home: NoEffect[BlackListed[str]] = ""
    """Apache's installation folder; nothing is looked for there."""
    kv_config_path: BlackListed[str] = ""
    """File of the key-value configuration."""
    config_store_path: BlackListed[str] = ""
    """File in which settings changed by request are kept: that of `-c`."""
    product_env_name: NextStart[str] = "center"
    """Unit of the production environment at the address server, for `clusterTest`."""
    cluster_test: NextStart[bool] = False
    """Asks the name servers of the production environment for routes that are unknown here."""
    order_message_enable: bool = False
    """Adds the ordered-topic configuration to routes."""
    return_order_topic_config_to_broker: bool = True
    """Answers registrations with the ordered topics."""
    client_request_thread_pool_nums: NoEffect[int] = 8
    """Threads for routes; one event loop does this work."""
    default_thread_pool_nums: NoEffect[int] = 16
    """Threads for all other requests; one event loop does this work."""
    client_request_thread_pool_queue_capacity: NoEffect[int] = 50000
    """Queue before the threads for routes; requests wait in no queue here."""
    default_thread_pool_queue_capacity: NoEffect[int] = 10000
    """Queue before the threads for all other requests; requests wait in no queue here."""
    scan_not_active_broker_interval: Positive = 5000
    """How often silent brokers are looked for, in ms."""
    un_register_broker_queue_capacity: NoEffect[int] = 3000
    """Queue of brokers that leave; removals are done at once."""
    support_acting_master: bool = False
    """Routes name the replica with the smallest id as master where the master is lost."""
    enable_all_topic_list: bool = True
    """Allows listing all topics."""
    enable_topic_list: bool = True
    """Allows listing the topics of a cluster and the system topics."""
    notify_min_broker_id_changed: bool = False
    """Tells brokers of a group that their smallest id changed."""
    enable_controller_in_namesrv: bool = False
    """Runs a controller in the name server; there is no controller yet."""
    need_wait_for_service: bool = False
    """Answers no routes before `waitSecondsForService`, so that all brokers have registered."""
    wait_seconds_for_service: Natural = 45
    """Seconds of that wait after the start."""
    delete_topic_with_broker_registration: bool = False
    """Drops the queues of topics that a broker's registration does not name."""
    config_black_list: BlackListed[str] = "configBlackList;configStorePath;kvConfigPath"
    """Keys that no request may change, separated by `;`."""

    listen_port: Fixed[Port] = DEFAULT_PORT
    """Port to listen on; 0 takes a free one."""

    def __post_init__(self) -> None:
        refuse_unsupported(self, UNSUPPORTED)


class NamesrvSettings(ServerSettings, frozen=True, kw_only=True):
    """Settings outside of `GET_NAMESRV_CONFIG`."""

    metrics_port: Fixed[Port | None] = msgspec.field(name="metricsPort", default=None)
    """Port of `/metrics`, `/health` and `/ready` at `bindAddress`; without it they are not served."""
    product_env_namesrv_addr: Fixed[str | None] = msgspec.field(name="productEnvNamesrvAddr", default=None)
    """Name servers of the production environment, for `clusterTest`."""
