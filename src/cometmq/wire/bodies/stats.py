"""Bodies about the statistics of a broker."""

from __future__ import annotations

import msgspec


class BrokerStatsItem(msgspec.Struct, frozen=True):
    """How a number grew over a span of time."""

    sum: int = 0
    tps: float = 0.0
    """A second."""
    avgpt: float = 0.0
    """Each time that something was added."""


class BrokerStatsData(msgspec.Struct, frozen=True, rename="camel"):
    """How a number of a broker grew lately."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem
