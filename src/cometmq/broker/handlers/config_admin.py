"""The settings and the state of a running broker: show them, change them; and its upkeep on demand.

Rules kept here:
- A change is stored first, in the file that the broker was started with, and nothing changes if one of the
  values cannot be. Keys that are unknown are ignored, as RocketMQ's tools expect.
- Names, addresses, ports, folders and sizes of files are not changed by request; their declarations say so.
- Settings that shape flushing are stored and take effect at the next start; the others take effect at once.
- Nothing is stored with which the next start would be refused.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.broker.config import BrokerConfig
from cometmq.broker.monitor.runtime_info import runtime_info
from cometmq.broker.start_checks import refuse_settings
from cometmq.model.errors import CometError, HeaderError, SettingsError
from cometmq.model.settings import as_texts, changed_by_request, check_stored, refuse_keys
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, NoHeader, handles
from cometmq.remoting.server_settings import ServerSettings, refuse_unsupported_keys
from cometmq.store.config import StoreConfig
from cometmq.wire.bodies.json_body import encode_kv_table
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.admin import GetBrokerConfigResponse
from cometmq.wire.java_properties import format_properties, parse_properties
from cometmq.wire.json.pretty import dumps_table

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerContext

log = logging.getLogger("cometmq.broker")

_KINDS: Final = (BrokerConfig, StoreConfig)


class ConfigAdminHandlers:
    """`getBrokerConfig`, `updateBrokerConfig`, `brokerStatus`, and upkeep."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._black_list = context.settings.broker.config_black_list
        self._changing = asyncio.Lock()

    @handles(RequestCode.GET_BROKER_CONFIG, NoHeader)
    def get(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Every setting in force."""
        texts = {**_shown(self._context.settings.broker), **_shown(self._context.settings.store)}
        version = dumps_table(self._context.settings.version, pretty=False).decode()
        body = format_properties(dict(sorted(texts.items()))).encode()
        return Answer(header=GetBrokerConfigResponse(version=version), body=body)

    @handles(RequestCode.UPDATE_BROKER_CONFIG, NoHeader)
    async def update(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Change settings."""
        if not request.body:
            return Answer()
        try:
            wanted = parse_properties(str(request.body, "utf-8"))
        except (HeaderError, UnicodeDecodeError):
            return Answer(ResponseCode.SYSTEM_ERROR, remark="string2Properties error")
        refusal = refuse_keys(_KINDS, wanted, self._black_list)
        if refusal is not None:
            log.warning("%s wants to change settings: %s", connection.remote_address, refusal)
            return Answer(ResponseCode.NO_PERMISSION, remark=refusal)
        log.info("%s changes settings: %s", connection.remote_address, ", ".join(wanted))
        async with self._changing:
            return await self._apply(wanted)

    async def _apply(self, wanted: dict[str, str]) -> Answer:
        context = self._context
        try:
            config = changed_by_request(context.settings.broker, wanted)
            store_config = changed_by_request(context.settings.store, wanted)
            refuse_settings(config, store_config)
            refuse_unsupported_keys(wanted)
        except CometError as error:
            return Answer(ResponseCode.INVALID_PARAMETER, remark=error.message)
        if (config, store_config) == (context.settings.broker, context.settings.store):
            return Answer()
        try:
            await asyncio.get_running_loop().run_in_executor(context.worker, self._store, wanted)
        except (OSError, HeaderError, SettingsError, UnicodeDecodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            remark = f"the settings could not be stored: {reason}; nothing was changed"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        permission_before = context.settings.broker.broker_permission
        context.settings.change(config, store_config)
        if config.broker_permission != permission_before:
            context.topics.touch()
        return Answer()

    def _store(self, wanted: dict[str, str]) -> None:
        """Write what was changed to the file; everything else in it stays."""
        if not self._context.settings.broker.broker_config_path:
            return  # started without a file: the change lasts as long as the process
        path = Path(self._context.settings.broker.broker_config_path)
        known = {*BrokerConfig.__struct_encode_fields__, *StoreConfig.__struct_encode_fields__}
        stored = parse_properties(str(self._context.disk.read(path) or b"", "utf-8"))
        stored.update((key, value) for key, value in wanted.items() if key in known)
        text = format_properties(stored)
        check_stored((*_KINDS, ServerSettings), parse_properties(text), str(path))
        self._context.disk.replace(path, text.encode())

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO, NoHeader)
    def runtime(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Counters, rates, offsets and how full the disk is."""
        return Answer(body=encode_kv_table(runtime_info(self._context, self._context.rates)))

    @handles(RequestCode.GET_BROKER_EPOCH_CACHE, NoHeader)
    def epochs(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """The epochs of a broker that a controller leads; there is none here."""
        return Answer(ResponseCode.SYSTEM_ERROR, remark="this request only for controllerMode ")

    @handles(RequestCode.TRIGGER_DELETE_FILES, NoHeader)
    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG, NoHeader)
    def delete_expired(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Delete expired files of the log soon, whatever the hour is."""
        self._context.store.delete_expired()
        return Answer()

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, NoHeader)
    def clean_queues(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Queues follow the log by themselves; there is never anything left over."""
        return Answer()

    @handles(RequestCode.CLEAN_UNUSED_TOPIC, NoHeader)
    async def clean_topics(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Delete the queues of topics that do not exist any more."""
        topics = self._context.topics
        unused = [name for name in self._context.store.queues.topics() if topics.get(name) is None]
        unused = [name for name in unused if not topics.is_system_topic(name)]
        await self._context.store.delete_topics(unused)
        for name in unused:
            self._context.statistics.forget_topic(name)
        return Answer()


def _shown(settings: msgspec.Struct) -> dict[str, str]:
    """Settings as text, without those that have no value."""
    names = zip(settings.__struct_fields__, settings.__struct_encode_fields__, strict=True)
    unset = {key for name, key in names if getattr(settings, name) is None}
    return {key: text for key, text in as_texts(settings).items() if key not in unset}
