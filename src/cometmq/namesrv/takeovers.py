"""Takeovers: a record, for operators, of routes that moved to another address.

Rules kept here:
- A registration under the name and id of another broker takes its route, as with Apache's name server. That
  is right for a broker that moved or that a controller elected, and wrong for two brokers with one name. With
  controllers the newer state keeps the route; the attempt is recorded, too.
- A move between two addresses is logged at first, and again at most every `LOG_AGAIN_MS`. Every move counts.
- The record has the last `MOST_KEPT` moves of the last hour. GET_BROKER_CLUSTER_INFO returns it on request;
  `cometmq doctor` reads it there.
"""

from __future__ import annotations

import logging
from typing import Final

from cometmq.model.route import Takeover
from cometmq.namesrv.tables import BrokerRegistration, Registered
from cometmq.ports.clock import Clock

log = logging.getLogger("cometmq.namesrv")

MOST_KEPT: Final = 64
KEPT_MS: Final = 3_600_000
LOG_AGAIN_MS: Final = 600_000

_Key = tuple[str, int, frozenset[str]]


class Takeovers:
    """The moves of the last hour; belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[_Key, Takeover] = {}
        self._logged_ms: dict[_Key, int] = {}
        self.total = 0

    def note(self, new: BrokerRegistration, registered: Registered, peer: str) -> None:
        """Note that a registration took the route of an address, or would have if its state were newer."""
        if registered.taken_from is not None:
            self._add(new, registered.taken_from, new.broker_addr, peer)
        elif registered.kept_by is not None:
            self._add(new, new.broker_addr, registered.kept_by, peer)

    def _add(self, new: BrokerRegistration, old_addr: str, new_addr: str, peer: str) -> None:
        now_ms = self._clock.now_ms()
        key = (new.broker_name, new.broker_id, frozenset((old_addr, new_addr)))
        known = self._kept.pop(key, None)
        self._kept[key] = Takeover(
            broker_id=new.broker_id,
            broker_name=new.broker_name,
            cluster=new.cluster,
            count=1 if known is None else known.count + 1,
            last_ms=now_ms,
            new_addr=new_addr,
            old_addr=old_addr,
        )
        self.total += 1
        if now_ms - self._logged_ms.get(key, now_ms - LOG_AGAIN_MS) >= LOG_AGAIN_MS:
            self._logged_ms[key] = now_ms
            log.warning(
                "broker %s, id %d, is registered at %s and at %s, lastly by %s: clients go to the latter. If "
                "both run, give one of them another brokerName or brokerId; if one is not yours, keep it "
                "away from this name server with a firewall",
                *(new.broker_name, new.broker_id, old_addr, new_addr, peer),
            )
        while len(self._kept) > MOST_KEPT:
            self._forget(next(iter(self._kept)))

    def recent(self) -> list[Takeover]:
        """The moves of the last hour, the oldest first."""
        now_ms = self._clock.now_ms()
        for key in [key for key, each in self._kept.items() if each.last_ms + KEPT_MS < now_ms]:
            self._forget(key)
        return list(self._kept.values())

    def _forget(self, key: _Key) -> None:
        del self._kept[key]
        self._logged_ms.pop(key, None)
