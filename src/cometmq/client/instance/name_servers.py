"""The name servers of a client: one at a time, the next one after a failure.

Rules kept here:
- They are listed (`namesrv`, or the environment), or an address server lists them (`namesrv_domain`); with
  `namesrv_dns_lookup`, DNS gives the addresses behind each name. What is looked up is looked up at the start,
  and then every two minutes. A look-up that fails later changes nothing.
- A client starts with a random one, so that clients spread, and stays with it while it responds.
- The timeout of a call is shared among the servers that are left, so one that hangs does not use it up.
- Any response is final; only timeouts and broken connections lead to the next server.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import NamedTuple

from cometmq.client.instance.troubles import Troubles
from cometmq.model.errors import RemotingError, ResponseError
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.name_server_addresses import fetch_addresses, resolve_addresses
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command, Payload
from cometmq.wire.header.schema import Header

log = logging.getLogger("cometmq.client")


class NameServerSource(NamedTuple):
    """Where the addresses come from."""

    listed: tuple[str, ...] = ()
    url: str = ""
    """The address server, if none are listed."""
    dns_lookup: bool = False

    @property
    def is_fixed(self) -> bool:
        return bool(self.listed) and not self.dns_lookup

    async def find(self) -> tuple[str, ...]:
        found = self.listed or await fetch_addresses(self.url)
        return await resolve_addresses(found) if self.dns_lookup else found


class NameServers:
    """Sends requests to name servers."""

    def __init__(
        self, source: NameServerSource, remoting: RemotingClient, troubles: Troubles | None = None
    ) -> None:
        self.source = source
        self._troubles = troubles or Troubles()
        self.addresses: tuple[str, ...] = ()
        self._remoting = remoting
        self._chosen = 0
        if source.is_fixed:
            self.replace(source.listed)

    @property
    def current(self) -> str:
        """The address of the name server that is asked first."""
        return self.addresses[self._chosen]

    def replace(self, addresses: Sequence[str]) -> None:
        """Use these from now on; the current one stays current if it is among them."""
        current = self.current if self.addresses else None
        if set(addresses) == set(self.addresses):
            return
        if self.addresses:
            log.info("the name servers are now %s", ";".join(addresses))
        self.addresses = tuple(addresses)
        if current in self.addresses:
            self._chosen = self.addresses.index(current)
        else:
            self._chosen = random.randrange(len(self.addresses))

    def use(self, addresses: tuple[str, ...]) -> None:
        """Use these from now on, in place of those that were listed or looked up."""
        self.source = NameServerSource(addresses)
        self.replace(addresses)

    async def look_up(self) -> None:
        """Find the addresses anew, unless they are fixed."""
        source = self.source
        found = await source.find()
        if source is self.source:  # else somebody named others meanwhile
            self.replace(found)

    async def call(
        self, code: int, header: Header | None = None, *, body: Payload = b"", timeout_s: float = 3.0
    ) -> Command:
        """Call the current server, then the others if it fails; raises the last failure if all do."""
        if not self.addresses:
            await self.look_up()
        loop = self._remoting.loop
        deadline = loop.time() + timeout_s
        count = len(self.addresses)
        failure: RemotingError | None = None
        for left in range(count, 0, -1):
            index, address = self._chosen, self.current
            try:
                share_s = (deadline - loop.time()) / left
                answer = await self._remoting.call(address, code, header, body=body, timeout_s=share_s)
            except RemotingError as error:
                failure = error
                self._troubles.met(f"name server {address}", f"the name server {address} failed: {error}")
                if self._chosen == index:  # unless another call has moved on already
                    self._chosen = (index + 1) % count
            else:
                if self._troubles:
                    self._troubles.over(f"name server {address}", f"the name server {address} answers again")
                return answer
        assert failure is not None
        raise failure

    async def call_ok(
        self, code: int, header: Header | None = None, *, body: Payload = b"", timeout_s: float = 3.0
    ) -> Command:
        """Call, and raise `ResponseError` for any response other than success."""
        answer = await self.call(code, header, body=body, timeout_s=timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or "no reason given"
            raise ResponseError(f"the name server refused request {code}: {remark}", code=answer.code)
        return answer
