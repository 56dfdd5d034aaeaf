"""The remoting client: one shared connection for each address, made when first needed.

Rules kept here:
- A timeout covers the whole call: connecting, waiting for a writable connection, and the answer.
- Calls to one address without a connection share one attempt to make it.
- A server that answers GO_AWAY gets the request once more on a new connection.
- A cancelled call is forgotten at once.
- `call` returns any answer, `call_ok` raises unless it is a success.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Final, Protocol

from cometmq.model.errors import CallTimeoutError, ConnectError, RemotingError, ResponseError
from cometmq.model.java_numbers import natural_int
from cometmq.remoting.calls import never_sent
from cometmq.remoting.connection import Connection
from cometmq.remoting.endpoint import Endpoint
from cometmq.remoting.handler import HandlerTable
from cometmq.remoting.limits import Limits
from cometmq.remoting.tls import ClientTls, client_context
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command, Payload
from cometmq.wire.frame.framing import JSON
from cometmq.wire.header.schema import Fields, Header, encode_fields

CONNECT_TIMEOUT_S: Final = 3.0
CALL_TIMEOUT_S: Final = 3.0
_GO_AWAY: Final = ResponseCode.GO_AWAY.value


class CallHook(Protocol):
    """Sees every call before it is sent and every answer before the caller does."""

    def before_call(self, address: str, code: int, fields: dict[str, str], body: Payload) -> None:
        """May change `fields`, for example to sign them."""

    def after_call(self, address: str, code: int, answer: Command) -> None: ...


class RemotingClient(Endpoint):
    """Calls servers by address."""

    answers_first = False

    def __init__(
        self,
        *,
        handlers: HandlerTable | None = None,
        call_hooks: Sequence[CallHook] = (),
        limits: Limits | None = None,
        tls: ClientTls | None = None,
        serialize_type: int = JSON,
    ) -> None:
        super().__init__(limits=limits, handlers=handlers)
        self.serialize_type = serialize_type
        self._call_hooks = tuple(call_hooks)
        self._ssl: ssl.SSLContext | None = None if tls is None else client_context(tls)
        self._by_address: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._stopped = False

    @property
    def uses_tls(self) -> bool:
        return self._ssl is not None

    async def call(
        self,
        address: str,
        code: int,
        header: Fields | None = None,
        *,
        body: Payload = b"",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Command:
        """Ask and wait for the answer, whatever its code is."""
        fields = self._hooked_fields(address, code, header, body) if self._call_hooks else header
        deadline = self.loop.time() + timeout_s
        went_away = False
        while True:
            connection = self._by_address.get(address)
            if connection is None or not connection.channel.takes_calls:
                connection = await self._connection(address, deadline, code)
            left_s = deadline - self.loop.time()
            future = connection.call(code, fields, body, timeout_s=left_s, serialize_type=self.serialize_type)
            try:
                answer = await future
            except asyncio.CancelledError:
                connection.forget(future)
                raise
            if answer.code != _GO_AWAY:
                break
            self._replace(connection)
            connection.retire()
            if went_away:
                raise RemotingError(f"{address} is shutting down; try another server", code=answer.code)
            went_away = True
        for hook in self._call_hooks:
            hook.after_call(address, code, answer)
        return answer

    async def call_ok(
        self,
        address: str,
        code: int,
        header: Fields | None = None,
        *,
        body: Payload = b"",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Command:
        """Ask and wait for a success; any other answer raises `ResponseError` with its code and remark."""
        answer = await self.call(address, code, header, body=body, timeout_s=timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or "no reason given"
            raise ResponseError(f"{address} refused request {code}: {remark}", code=answer.code)
        return answer

    async def oneway(
        self,
        address: str,
        code: int,
        header: Fields | None = None,
        *,
        body: Payload = b"",
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Send a request that nobody answers; returns when it is on its way."""
        fields = self._hooked_fields(address, code, header, body) if self._call_hooks else header
        connection = await self._connection(address, self.loop.time() + timeout_s, code)
        connection.oneway(code, fields, body, serialize_type=self.serialize_type)

    async def stop(self) -> None:
        """Fail all calls in flight and close all connections."""
        self._stopped = True
        for task in list(self._connecting.values()):
            task.cancel()
        for connection in list(self.connections):
            connection.close("client stopped", abort=True)
        for handler in list(self.tasks):  # nobody can get its answer any more
            handler.cancel()
        await self.drain()

    def _hooked_fields(self, address: str, code: int, header: Fields | None, body: Payload) -> dict[str, str]:
        if isinstance(header, Header):
            fields = encode_fields(header)
        else:
            fields = {name: text for name, text in (header or {}).items() if text is not None}
        for hook in self._call_hooks:
            hook.before_call(address, code, fields, body)
        return fields

    async def _connection(self, address: str, deadline: float, code: int) -> Connection:
        """Returns a writable connection; raises `CallTimeoutError` at the deadline."""
        connection = self._by_address.get(address)
        if connection is not None and connection.channel.takes_calls:
            return connection
        try:
            async with asyncio.timeout_at(deadline):
                if connection is None or not connection.is_open:
                    connection = await self._connect_once(address)
                await connection.channel.writable()
        except TimeoutError:
            raise never_sent(
                CallTimeoutError(f"{address} could not be reached in time for request {code}")
            ) from None
        return connection

    async def _connect_once(self, address: str) -> Connection:
        if self._stopped:
            raise ConnectError("the client is stopped")
        task = self._connecting.get(address)
        if task is None:
            task = self._connecting[address] = self.loop.create_task(self._connect(address))
            task.add_done_callback(lambda done: self._connected(address, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ConnectError(f"connecting to {address} was cancelled: the client stopped") from None
            raise

    async def _connect(self, address: str) -> Connection:
        host, port = split_address(address)
        connection = Connection(self, sniff=False)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self.loop.create_connection(lambda: connection.channel, host, port, ssl=self._ssl)
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: a name that no resolver takes
            raise ConnectError(f"cannot connect to {address}: {_reason(error)}") from None
        connection.channel.remote_address = address
        return connection

    def _connected(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if task.cancelled() or task.exception() is not None:
            return
        if self._stopped:
            task.result().close("client stopped", abort=True)
        else:
            self._by_address[address] = task.result()

    def fell_silent(self, connection: Connection) -> None:
        """The peer may be gone; the next call makes a new connection."""
        self._replace(connection)

    def closed(self, connection: Connection) -> None:
        self._replace(connection)
        super().closed(connection)

    def _replace(self, connection: Connection) -> None:
        if self._by_address.get(connection.remote_address) is connection:
            del self._by_address[connection.remote_address]


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError | socket.gaierror):
        return os.strerror(error.errno)  # asyncio puts the address in its place
    return getattr(error, "strerror", None) or str(error) or "timed out"


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of `host:port`, `[v6]:port` or `v6:port`."""
    host, _, port = address.strip().rpartition(":")
    number = natural_int(port)
    if not host or number is None or number > 65535:
        raise ConnectError(f"{address!r} is not an address; expected host:port")
    return host.strip("[]"), number
