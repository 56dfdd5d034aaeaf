"""The name servers of a broker: listed in `namesrvAddr`, behind its names in DNS, or from an address server.

Rules kept here:
- `namesrvAddr` is the list, also when it changes while the broker runs. With `fetchNameSrvAddrByDnsLookup`,
  DNS gives the addresses behind each name, every `updateNameServerAddrPeriod`.
- Without `namesrvAddr`, `fetchNamesrvAddrByAddressServer` asks the address server at COMETMQ_NAMESRV_DOMAIN,
  every `fetchNamesrvAddrInterval`.
- A look-up that fails changes nothing; the log says it once, and when one succeeds again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from cometmq.broker.settings import Settings
from cometmq.model.errors import CometError
from cometmq.remoting.name_server_addresses import (
    APACHE_DOMAIN,
    address_server_url,
    fetch_addresses,
    resolve_addresses,
)

log = logging.getLogger("cometmq.broker")


class NameServers:
    """The addresses of a broker's name servers; belongs to the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._found: tuple[str, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self.on_change: list[Callable[[], None]] = []
        """Called when a look-up found others than before."""
        self.failure: str | None = None
        """Why the last look-up failed."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The name servers of now."""
        return self._found if self.are_looked_up else self._settings.broker.namesrv_addresses

    @property
    def are_looked_up(self) -> bool:
        config = self._settings.broker
        if config.namesrv_addresses:
            return config.fetch_name_srv_addr_by_dns_lookup
        return config.fetch_namesrv_addr_by_address_server

    async def start(self) -> None:
        """Look them up if that is asked for, and go on with it."""
        if self.are_looked_up:
            await self._look_up()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            config = self._settings.broker
            by_dns = bool(config.namesrv_addresses)
            period_ms = (
                config.update_name_server_addr_period if by_dns else config.fetch_namesrv_addr_interval
            )
            await asyncio.sleep(period_ms / 1000)
            if self.are_looked_up:
                await self._look_up()

    async def _look_up(self) -> None:
        listed = self._settings.broker.namesrv_addresses
        try:
            if listed:
                found = await resolve_addresses(listed)
            else:
                found = await fetch_addresses(address_server_url() or address_server_url(APACHE_DOMAIN))
        except CometError as error:
            if self.failure is None:
                log.warning("name servers are not found: %s", error)
            self.failure = error.message
            return
        if self.failure is not None:
            log.info("name servers are found again")
        self.failure = None
        if set(found) != set(self._found):
            self._found = found
            log.info("the name servers are %s", ";".join(found))
            for listener in self.on_change:
                listener()
