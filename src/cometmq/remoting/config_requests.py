"""UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG: what both have in common.

Rules kept here:
- A change is stored first, and nothing changes if one of the values cannot be stored.
- Unknown keys are ignored, as RocketMQ's tools expect; a fixed or black-listed key refuses the request.
- Nothing is stored with which the next start would be refused. Requests are served one after the other.
- The answer says in `states` what became of each setting, as `key=state` separated by `;`, and in `keptIn`
  which file has it for the next start. Apache's servers say neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

import msgspec

from cometmq.model.errors import CometError, HeaderError, SettingsError
from cometmq.model.settings import refuse_keys, states
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer
from cometmq.remoting.server_settings import ServerSettings, refuse_unsupported_keys
from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.java_properties import parse_properties


def read_properties(request: Command) -> dict[str, str]:
    """The properties in the body of a request."""
    try:
        return parse_properties(str(request.body, "utf-8"))
    except (HeaderError, UnicodeDecodeError):
        raise CometError("string2Properties error", code=ResponseCode.SYSTEM_ERROR) from None


class ConfigUpdates:
    """Takes requests that change settings; belongs to the event loop."""

    def __init__(
        self,
        configs: Sequence[type[msgspec.Struct]],
        server: type[ServerSettings],
        black_list: str,
        kept_in: str | None,
        log: logging.Logger,
    ) -> None:
        """`configs` are changed by requests, settings of the `server` itself are not."""
        self._kinds = (*configs, server)
        self._states = {key: state for config in configs for key, state in states(config).items()}
        self._black_list = black_list
        self._kept_in = kept_in
        self._log = log
        self._changing = asyncio.Lock()

    async def take(
        self, request: Command, connection: Connection, change: Callable[[dict[str, str]], Awaitable[None]]
    ) -> Answer:
        """Check a request and `change` the settings that it asks for."""
        if not request.body:
            return Answer()
        wanted = read_properties(request)
        refusal = refuse_keys(self._kinds, wanted, self._black_list)
        if refusal is not None:
            self._log.warning("%s wants to change settings: %s", connection.remote_address, refusal)
            return Answer(ResponseCode.NO_PERMISSION, remark=refusal)
        self._log.info("%s changes settings: %s", connection.remote_address, ", ".join(wanted))
        async with self._changing:
            try:
                refuse_unsupported_keys(wanted)
                await change(wanted)
            except CometError as error:
                return Answer(error.code or ResponseCode.INVALID_PARAMETER, remark=error.message)
        done = ";".join(f"{key}={state}" for key, state in self._states.items() if key in wanted)
        if not done:
            return Answer()
        return Answer(fields={"states": done, **({"keptIn": self._kept_in} if self._kept_in else {})})


async def store_settings(worker: Executor | None, store: Callable[[], None]) -> None:
    """Run `store` on a worker thread; raises `CometError` if it fails."""
    try:
        await asyncio.get_running_loop().run_in_executor(worker, store)
    except (OSError, HeaderError, SettingsError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        message = f"the settings could not be stored: {reason}; nothing was changed"
        raise CometError(message, code=ResponseCode.SYSTEM_ERROR) from None
