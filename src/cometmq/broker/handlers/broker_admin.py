"""Requests about the broker itself: settings, state, statistics, timers, cold reads and upkeep.

Rules kept here:
- Changed settings are stored in the file that the broker was started with (`remoting/config_requests.py`).
- Names, addresses, ports, folders and sizes of files are not changed by request; their declarations say so.
- Declarations also say which settings take effect at the next start; the others take effect at once.
- Cold read thresholds of groups last until the broker stops, as with RocketMQ. The read-ahead mode is the
  setting `dataReadAheadEnable`, in force at once for all files of the log.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Final

import msgspec

from cometmq.broker.config import BrokerConfig
from cometmq.broker.context import BrokerContext
from cometmq.broker.handlers.refusals import invalid
from cometmq.broker.monitor.runtime_info import runtime_info
from cometmq.broker.start_checks import refuse_settings
from cometmq.model.java_numbers import natural_long
from cometmq.model.settings import as_texts, changed_by_request, check_stored
from cometmq.remoting.config_requests import ConfigUpdates, read_properties, store_settings
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.remoting.server_settings import ServerSettings
from cometmq.store.config import StoreConfig
from cometmq.store.tables.tables import TimerMetricsTable
from cometmq.wire.bodies.json_body import encode_kv_table
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.admin import (
    GetBrokerConfigResponse,
    SetCommitLogReadModeRequest,
    ViewBrokerStatsDataRequest,
)
from cometmq.wire.java_properties import format_properties, parse_properties
from cometmq.wire.json import fastjson
from cometmq.wire.json.pretty import dumps_table

log = logging.getLogger("cometmq.broker")

_CONFIGS: Final = (BrokerConfig, StoreConfig)
NORMAL: Final = 0
RANDOM: Final = 1


class BrokerAdminHandlers:
    """Settings, `brokerStatus`, statistics, timers and upkeep."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        config = context.settings.broker
        self._updates = ConfigUpdates(
            _CONFIGS, ServerSettings, config.config_black_list, config.broker_config_path, log
        )

    @handles(RequestCode.GET_BROKER_CONFIG)
    def get(self) -> Answer:
        """Every setting in force."""
        texts = {**_shown(self._context.settings.broker), **_shown(self._context.settings.store)}
        version = dumps_table(self._context.settings.version, pretty=False).decode()
        body = format_properties(dict(sorted(texts.items()))).encode()
        return Answer(header=GetBrokerConfigResponse(version=version), body=body)

    @handles(RequestCode.UPDATE_BROKER_CONFIG)
    async def update(self, request: Command, connection: Connection) -> Answer:
        """Change settings."""
        return await self._updates.take(request, connection, self._change)

    async def _change(self, wanted: dict[str, str]) -> None:
        settings, before = self._context.settings, self._context.settings.broker
        config = changed_by_request(before, wanted)
        store_config = changed_by_request(settings.store, wanted)
        refuse_settings(config, store_config)
        if (config, store_config) == (before, settings.store):
            return
        await store_settings(self._context.worker, functools.partial(self._store, wanted))
        settings.change(config, store_config)
        if config.broker_permission != before.broker_permission:
            self._context.topics.touch()

    def _store(self, wanted: dict[str, str]) -> None:
        """Write what was changed to the file; everything else in it stays."""
        if not self._context.settings.broker.broker_config_path:
            return  # started without a file: the change lasts as long as the process
        path = Path(self._context.settings.broker.broker_config_path)
        known = {*BrokerConfig.__struct_encode_fields__, *StoreConfig.__struct_encode_fields__}
        stored = parse_properties(str(self._context.disk.read(path) or b"", "utf-8"))
        stored.update((key, value) for key, value in wanted.items() if key in known)
        text = format_properties(stored)
        check_stored((*_CONFIGS, ServerSettings), parse_properties(text), str(path))
        self._context.disk.replace(path, text.encode())

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime(self) -> Answer:
        """Counters, rates, offsets and how full the disk is."""
        return Answer(body=encode_kv_table(runtime_info(self._context)))

    @handles(RequestCode.GET_BROKER_EPOCH_CACHE)
    def epochs(self) -> Answer:
        """The epochs of a broker that a controller leads; there is none here."""
        return Answer(ResponseCode.SYSTEM_ERROR, remark="this request only for controllerMode ")

    @handles(RequestCode.TRIGGER_DELETE_FILES)
    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_expired(self) -> Answer:
        """Delete expired files of the log soon, whatever the hour is."""
        self._context.store.delete_expired()
        return Answer()

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_queues(self) -> Answer:
        """Queues follow the log by themselves; there is never anything left over."""
        return Answer()

    @handles(RequestCode.CLEAN_UNUSED_TOPIC)
    async def clean_topics(self) -> Answer:
        """Delete the queues of topics that do not exist any more."""
        topics = self._context.topics
        unused = [name for name in self._context.store.queues.topics() if topics.get(name) is None]
        unused = [name for name in unused if not topics.is_system_topic(name)]
        await self._context.store.delete_topics(unused)
        for name in unused:
            self._context.statistics.forget_topic(name)
        return Answer()

    @handles(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequest)
    def statistics(self, header: ViewBrokerStatsDataRequest) -> Answer:
        """One number of the broker over the last minute, hour and day."""
        found = self._context.statistics.find(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        return Answer(body=dumps_table(found, pretty=False))

    @handles(RequestCode.GET_TIMER_CHECK_POINT)
    def timer_checkpoint(self) -> Answer:
        """The saved timer checkpoint."""
        if not self._context.timers.runs:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="The checkpoint is null")
        return Answer(body=self._context.timers.progress.pack())

    @handles(RequestCode.GET_TIMER_METRICS)
    def timer_metrics(self) -> Answer:
        """How many messages of each topic wait for their time."""
        if not self._context.timers.runs:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="The timerMessageStore is null")
        table = TimerMetricsTable(*self._context.timers.counts.copy())
        return Answer(body=dumps_table(table.completed(), pretty=False))


def _shown(settings: msgspec.Struct) -> dict[str, str]:
    """Settings as text, without those that have no value."""
    names = zip(settings.__struct_fields__, settings.__struct_encode_fields__, strict=True)
    unset = {key for name, key in names if getattr(settings, name) is None}
    return {key: text for key, text in as_texts(settings).items() if key not in unset}


class ColdReadHandlers:
    """The requests 2001 to 2004."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._reads = context.cold_reads

    @handles(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG)
    def update(self, request: Command, connection: Connection) -> Answer:
        """Set the thresholds of groups; all of them, or none."""
        if not request.body:
            return Answer()
        changes = {group: _threshold(group, text) for group, text in read_properties(request).items()}
        self._reads.set_thresholds(changes)
        log.info("%s sets cold read thresholds: %s", connection.remote_address, changes)
        return Answer()

    @handles(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG)
    def remove(self, request: Command) -> Answer:
        """Let a group have the threshold of all others again."""
        self._reads.thresholds.pop(str(request.body, "utf-8", "replace"), None)
        return Answer()

    @handles(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
    def get(self) -> Answer:
        """The thresholds, and what was read of late."""
        config = self._context.settings.broker
        self._reads.renew()
        members = {
            "cgColdReadThreshold": config.cg_cold_read_threshold,
            "configTable": self._reads.thresholds,
            "globalAcc": self._reads.total,
            "globalColdReadThreshold": config.global_cold_read_threshold,
            "runtimeTable": {
                group: {
                    "coldAcc": read.size,
                    "createTimeMills": read.first_ms,
                    "lastColdReadTimeMills": read.last_ms,
                }
                for group, read in self._reads.groups.items()
            },
        }
        return Answer(body=fastjson.dumps(members))

    @handles(RequestCode.SET_COMMITLOG_READ_MODE, SetCommitLogReadModeRequest)
    def set_read_mode(self, header: SetCommitLogReadModeRequest) -> Answer:
        """Choose how the commit log is read ahead."""
        mode = header.read_ahead_mode
        if mode is None:
            return Answer(ResponseCode.SYSTEM_ERROR, remark="set commitlog readahead mode param error")
        if mode not in (NORMAL, RANDOM):
            remark = "set commitlog readahead mode param value error"
            return Answer(ResponseCode.INVALID_PARAMETER, remark=remark)
        context = self._context
        changed = msgspec.structs.replace(context.settings.store, data_read_ahead_enable=mode == NORMAL)
        if changed != context.settings.store:
            context.settings.change(context.settings.broker, changed)
        return Answer(remark=f"set commitlog readahead mode success, mode: {mode}")


def _threshold(group: str, text: str) -> int:
    threshold = natural_long(text)
    if threshold is None:
        raise invalid(f"the threshold {text[:40]!r} of group {group} is not a number of bytes")
    return threshold
