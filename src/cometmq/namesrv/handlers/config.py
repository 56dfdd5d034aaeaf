"""The settings of a running name server: show them, change them."""

from __future__ import annotations

import functools
import logging
from pathlib import Path

from cometmq.model.settings import as_texts, changed_by_request, check_stored
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.namesrv.state import NamesrvState
from cometmq.remoting.config_requests import ConfigUpdates, store_settings
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.codes import RequestCode
from cometmq.wire.frame.command import Command
from cometmq.wire.java_properties import format_properties, parse_properties

log = logging.getLogger("cometmq.namesrv")


class ConfigHandlers:
    """`getNamesrvConfig` and `updateNamesrvConfig`."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state
        config = state.config
        self._updates = ConfigUpdates(
            [NamesrvConfig], NamesrvSettings, config.config_black_list, config.config_store_path, log
        )

    @handles(RequestCode.GET_NAMESRV_CONFIG)
    def get(self) -> Answer:
        """Every setting in force."""
        return Answer(body=format_properties(as_texts(self._state.config)).encode())

    @handles(RequestCode.UPDATE_NAMESRV_CONFIG)
    async def update(self, request: Command, connection: Connection) -> Answer:
        """Change settings."""
        return await self._updates.take(request, connection, self._change)

    async def _change(self, wanted: dict[str, str]) -> None:
        config = changed_by_request(self._state.config, wanted)
        await store_settings(None, functools.partial(self._store, config))
        self._state.change_config(config)

    def _store(self, config: NamesrvConfig) -> None:
        """Write all settings to their file; keys of it that are not among them (TLS, foreign ones) stay."""
        path = Path(config.config_store_path)
        stored = parse_properties(str(self._state.files.read(path) or b"", "utf-8"))
        text = format_properties({**stored, **as_texts(config)})
        check_stored([NamesrvConfig, NamesrvSettings], parse_properties(text), str(path))
        self._state.files.replace(path, text.encode())
