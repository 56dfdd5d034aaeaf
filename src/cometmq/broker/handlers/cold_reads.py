"""Reading of messages that are not in memory: what groups may read of them, and how the log is read ahead.

Rules kept here:
- The thresholds of groups are kept until the broker stops, as RocketMQ does; `broker/pull/cold_reads.py`
  says what they do.
- The read-ahead mode is the setting `dataReadAheadEnable`, in force at once for all files of the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.model.errors import CometError, HeaderError
from cometmq.model.java_numbers import natural_long
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, NoHeader, handles
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.admin import SetCommitLogReadModeRequest
from cometmq.wire.java_properties import parse_properties
from cometmq.wire.json import fastjson

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerContext

log = logging.getLogger("cometmq.broker")

NORMAL: Final = 0
RANDOM: Final = 1


class ColdReadHandlers:
    """The requests 2001 to 2004."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._reads = context.cold_reads

    @handles(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, NoHeader)
    def update(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Set the thresholds of groups; all of them, or none."""
        if not request.body:
            return Answer()
        try:
            wanted = parse_properties(str(request.body, "utf-8"))
        except (HeaderError, UnicodeDecodeError):
            return Answer(ResponseCode.SYSTEM_ERROR, remark="string2Properties error")
        changes = {group: _threshold(group, text) for group, text in wanted.items()}
        self._reads.set_thresholds(changes)
        log.info("%s sets cold read thresholds: %s", connection.remote_address, changes)
        return Answer()

    @handles(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, NoHeader)
    def remove(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Let a group have the threshold of all others again."""
        self._reads.thresholds.pop(str(request.body, "utf-8", "replace"), None)
        return Answer()

    @handles(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, NoHeader)
    def get(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
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
    def set_read_mode(
        self, header: SetCommitLogReadModeRequest, request: Command, connection: Connection
    ) -> Answer:
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
        message = f"the threshold {text[:40]!r} of group {group} is not a number of bytes"
        raise CometError(message, code=ResponseCode.INVALID_PARAMETER)
    return threshold
