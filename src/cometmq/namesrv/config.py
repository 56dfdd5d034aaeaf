"""The settings of a name server: RocketMQ's property names and defaults.

Keys for Apache's thread pools and sockets are kept, shown and stored, so that a configuration moves between
both servers unchanged; those marked "no effect" have none here. No request may change a `BlackListed` key,
which Apache refuses, nor a `Fixed` one: a name, an address or a port.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cometmq.model.settings import BlackListed, Fixed, Natural, Only, Port, Positive, refuse_unsupported
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

    rocketmq_home: BlackListed[str] = ""  # no effect
    kv_config_path: BlackListed[str] = ""
    config_store_path: BlackListed[str] = ""
    product_env_name: str = "center"
    cluster_test: bool = False
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    client_request_thread_pool_nums: int = 8  # no effect
    default_thread_pool_nums: int = 16  # no effect
    client_request_thread_pool_queue_capacity: int = 50000  # no effect
    default_thread_pool_queue_capacity: int = 10000  # no effect
    scan_not_active_broker_interval: Positive = 5000
    un_register_broker_queue_capacity: int = 3000  # no effect: removals are done at once
    support_acting_master: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    notify_min_broker_id_changed: bool = False
    enable_controller_in_namesrv: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: Natural = 45
    delete_topic_with_broker_registration: bool = False
    config_black_list: BlackListed[str] = "configBlackList;configStorePath;kvConfigPath"

    listen_port: Fixed[Port] = DEFAULT_PORT

    def __post_init__(self) -> None:
        refuse_unsupported(self, UNSUPPORTED)


class NamesrvSettings(ServerSettings, frozen=True, kw_only=True):
    """Settings outside of `GET_NAMESRV_CONFIG`."""

    metrics_port: Port | None = msgspec.field(name="metricsPort", default=None)
    """Where `/metrics`, `/health` and `/ready` are served over HTTP; without it they are not."""
    product_env_namesrv_addr: str | None = msgspec.field(name="productEnvNamesrvAddr", default=None)
    """Name servers of the production environment, for `clusterTest`; see `cluster_test.py`."""
