"""The shared state of a name server's handlers."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from cometmq.model.names import ORDER_TOPIC_NAMESPACE
from cometmq.model.route import TopicRoute
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.kv import KvConfig
from cometmq.namesrv.notices import MinIdNotices
from cometmq.namesrv.routes import RouteAnswers, pick_up_route
from cometmq.namesrv.tables import BrokerLeft, MinIdChange, RouteTables
from cometmq.namesrv.takeovers import Takeovers
from cometmq.ports.clock import Clock
from cometmq.ports.files import Files

log = logging.getLogger("cometmq.namesrv")


class NamesrvState:
    """Tables, key-value configuration and settings of one name server."""

    def __init__(self, config: NamesrvConfig, *, clock: Clock, files: Files, notices: MinIdNotices) -> None:
        self.config = config
        self.clock = clock
        self.files = files
        self.routes = RouteAnswers()
        self.tables = RouteTables(self.routes)
        self.kv = KvConfig(files, Path(config.kv_config_path))
        self.takeovers = Takeovers(clock)
        self.started_ms = clock.monotonic_ms()
        self._notices = notices

    def find_route(self, topic: str) -> TopicRoute | None:
        """Returns the route of a topic under the current settings."""
        config = self.config
        route = pick_up_route(self.tables, topic, acting_master=config.support_acting_master)
        if route is not None and config.order_message_enable:
            route.order_topic_conf = self.kv.get(ORDER_TOPIC_NAMESPACE, topic)
        return route

    def notify(self, change: MinIdChange | None) -> None:
        """Notify the members of a group of its new smallest id, if that is switched on."""
        if change is not None and self.config.notify_min_broker_id_changed:
            self._notices.send(change)

    def remove(self, leaving: Iterable[BrokerLeft], why: str) -> None:
        """Take brokers out of all tables."""
        gone = list(leaving)
        for left in gone:
            log.info(
                "broker %s (%s, id %d) left: %s", left.broker_name, left.broker_addr, left.broker_id, why
            )
        for change in self.tables.unregister(gone):
            self.notify(change)

    def change_config(self, config: NamesrvConfig) -> None:
        """Put other settings in force; cached routes are dropped."""
        self.config = config
        self.routes.brokers_changed()
