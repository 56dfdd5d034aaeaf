"""The name servers of a client: one at a time, the next one after a failure.

Rules kept here:
- A client starts with a random one, so that clients spread, and stays with it while it responds.
- The timeout of a call is shared among the servers that are left, so one that hangs does not use it up.
- Any response is final; only timeouts and broken connections lead to the next server.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

from cometmq.model.errors import RemotingError, ResponseError
from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command, Payload
from cometmq.wire.header.schema import Header

log = logging.getLogger("cometmq.client")


class NameServers:
    """Sends requests to name servers."""

    def __init__(self, addresses: Sequence[str], remoting: RemotingClient) -> None:
        self.addresses = tuple(addresses)
        self._remoting = remoting
        self._chosen = random.randrange(len(self.addresses))

    @property
    def current(self) -> str:
        """The address of the name server that is asked first."""
        return self.addresses[self._chosen]

    async def call(
        self, code: int, header: Header | None = None, *, body: Payload = b"", timeout_s: float = 3.0
    ) -> Command:
        """Call the current server, then the others if it fails; raises the last failure if all do."""
        loop = self._remoting.loop
        deadline = loop.time() + timeout_s
        count = len(self.addresses)
        failure: RemotingError | None = None
        for left in range(count, 0, -1):
            index, address = self._chosen, self.current
            try:
                share_s = (deadline - loop.time()) / left
                return await self._remoting.call(address, code, header, body=body, timeout_s=share_s)
            except RemotingError as error:
                failure = error
                log.warning("the name server %s failed: %s", address, error)
                if self._chosen == index:  # unless another call has moved on already
                    self._chosen = (index + 1) % count
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
