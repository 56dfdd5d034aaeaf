"""Bodies about the statistics of a broker."""

from __future__ import annotations

import msgspec


class BrokerStatsItem(msgspec.Struct, frozen=True):
    """How a counter grew over a period."""

    sum: int = 0
    tps: float = 0.0
    """Per second."""
    avgpt: float = 0.0
    """Average per addition."""


class BrokerStatsData(msgspec.Struct, frozen=True, rename="camel"):
    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem
