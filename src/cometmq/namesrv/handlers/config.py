"""The settings of a running name server: show them, change them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from cometmq.model.errors import CometError, HeaderError, SettingsError
from cometmq.model.settings import as_texts, changed_by_request, check_stored, refuse_keys
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.state import NamesrvState
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, NoHeader, handles
from cometmq.remoting.server_settings import refuse_unsupported_keys
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.java_properties import format_properties, parse_properties

log = logging.getLogger("cometmq.namesrv")


class ConfigHandlers:
    """`getNamesrvConfig` and `updateNamesrvConfig`."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state
        self._black_list = state.config.config_black_list
        self._changing = asyncio.Lock()

    @handles(RequestCode.GET_NAMESRV_CONFIG, NoHeader)
    def get(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Every setting in force."""
        return Answer(body=format_properties(as_texts(self._state.config)).encode())

    @handles(RequestCode.UPDATE_NAMESRV_CONFIG, NoHeader)
    async def update(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Change settings; they are stored first, and nothing changes if one of them cannot be."""
        if not request.body:
            return Answer()
        try:
            wanted = parse_properties(str(request.body, "utf-8"))
        except (HeaderError, UnicodeDecodeError):
            return Answer(ResponseCode.SYSTEM_ERROR, remark="string2Properties error")
        refusal = refuse_keys([NamesrvConfig], wanted, self._black_list)
        if refusal is not None:
            log.warning("%s wants to change settings: %s", connection.remote_address, refusal)
            return Answer(ResponseCode.NO_PERMISSION, remark=refusal)
        async with self._changing:
            return await self._apply(wanted)

    async def _apply(self, wanted: dict[str, str]) -> Answer:
        state = self._state
        try:  # keys that are unknown are ignored, as RocketMQ's tools expect
            refuse_unsupported_keys(wanted)
            config = changed_by_request(state.config, wanted)
        except CometError as error:
            return Answer(ResponseCode.INVALID_PARAMETER, remark=error.message)
        try:
            await asyncio.to_thread(self._store, config)
        except (OSError, HeaderError, SettingsError, UnicodeDecodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            remark = f"the settings could not be stored: {reason}; nothing was changed"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        state.change_config(config)
        return Answer()

    def _store(self, config: NamesrvConfig) -> None:
        """Write all settings to their file; keys of it that are not among them (TLS, foreign ones) stay."""
        path = Path(config.config_store_path)
        stored = parse_properties(str(self._state.files.read(path) or b"", "utf-8"))
        text = format_properties({**stored, **as_texts(config)})
        check_stored([NamesrvConfig, NamesrvSettings], parse_properties(text), str(path))
        self._state.files.replace(path, text.encode())
