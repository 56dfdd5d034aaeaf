"""Group administration: create, change, list, forbid and delete consumer groups.

Rules kept here: who changes a group hears of success when the change is on the disk.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import Final

import msgspec

from cometmq.broker.context import BrokerContext
from cometmq.broker.handlers.refusals import invalid, raise_if
from cometmq.broker.time_slices import encode_in_thread
from cometmq.broker.topics.names import refuse_group
from cometmq.model.java_numbers import LARGEST_INT, LARGEST_LONG
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import DataVersion
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, handles
from cometmq.store.tables.tables import SubscriptionGroupTable
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.frame.command import Command
from cometmq.wire.headers.group import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
    GetSubscriptionGroupConfigRequest,
    UpdateGroupForbiddenRequest,
)
from cometmq.wire.json.pretty import dumps_table

log = logging.getLogger("cometmq.broker")

MOST_AT_ONCE: Final = 2000
"""The most groups in one answer, and in one list that is taken."""
MAX_RETRY_QUEUES: Final = 1024
"""A pop looks into every queue of its group's retry topics."""


class _GroupList(msgspec.Struct, rename="camel"):
    group_config_list: list[SubscriptionGroupConfig] = []


class _Forbidden(msgspec.Struct, rename="camel"):
    """Whether a group may read a topic."""

    group: str
    topic: str
    readable: bool


class GroupAdminHandlers:
    """Consumer groups of this broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    async def update(self, request: Command, connection: Connection) -> Answer:
        """Make a group or change it."""
        with self._context.traffic.group_creations.measured():
            return await self._put([decode_json_body(SubscriptionGroupConfig, request.body)], connection)

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    async def update_list(self, request: Command, connection: Connection) -> Answer:
        """Create or change several groups: all of them, or none."""
        with self._context.traffic.group_creations.measured():
            return await self._put(decode_json_body(_GroupList, request.body).group_config_list, connection)

    async def _put(self, groups: list[SubscriptionGroupConfig], connection: Connection) -> Answer:
        if len(groups) > MOST_AT_ONCE:
            raise invalid(f"{len(groups)} groups are too many; send at most {MOST_AT_ONCE} at once")
        for group in groups:
            raise_if(refuse_group(group.group_name) or _refuse_numbers(group))
            log.info("%s updates group %s", connection.remote_address, group.group_name)
        raise_if(self._context.groups.refuse_size(groups))
        if not self._context.groups.has_room_for(group.group_name for group in groups):
            raise invalid(
                f"this broker has {len(self._context.groups.table)} groups, {len(groups)} more are too many; "
                "delete groups that nobody needs, or raise maxSubscriptionGroups"
            )
        if groups:
            self._context.groups.update_all(groups)
            await self._context.group_file.saved()
        return Answer()

    @handles(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequest)
    async def delete(self, header: DeleteSubscriptionGroupRequest, connection: Connection) -> Answer:
        """Forget a group, and how far it is if that is wanted."""
        raise_if(self._context.groups.refuse(header.group_name))
        log.info("%s deletes group %s", connection.remote_address, header.group_name)
        self._context.groups.delete(header.group_name)
        if header.clean_offset:
            self._context.offsets.remove(header.group_name)
        if self._context.settings.broker.auto_delete_unused_stats:
            self._context.statistics.forget_group(header.group_name)
        await self._context.group_file.saved()
        return Answer()

    @handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequest)
    def get(self, header: GetSubscriptionGroupConfigRequest) -> Answer:
        """How one group is set up."""
        group = self._context.groups.find(header.group)
        if group is None:
            return Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="No group in this broker")
        return Answer(body=dumps_table(group, pretty=False))

    @handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllSubscriptionGroupRequest)
    async def get_all(self, header: GetAllSubscriptionGroupRequest) -> Answer:
        """All groups, or a page of them."""
        groups = self._context.groups
        if header.group_seq is None:
            everything = groups.snapshot()
            encode = functools.partial(dumps_table, everything, pretty=False)
            return Answer(body=await encode_in_thread(encode, len(groups.table)))
        asked = decode_json_body(DataVersion, header.data_version.encode()) if header.data_version else None
        start = max(header.group_seq, 0) if asked == groups.data_version else 0
        count = MOST_AT_ONCE if header.max_group_num is None else min(header.max_group_num, MOST_AT_ONCE)
        names = sorted(groups.table)[start : start + max(count, 0)]
        page = SubscriptionGroupTable(
            groups.data_version,
            {name: groups.forbidden[name] for name in names if name in groups.forbidden},
            {name: groups.table[name] for name in names},
        )
        total = GetAllSubscriptionGroupResponse(total_group_num=len(groups.table))
        encode = functools.partial(dumps_table, page, pretty=False)
        return Answer(header=total, body=await encode_in_thread(encode, len(names)))

    @handles(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, UpdateGroupForbiddenRequest)
    async def forbid(self, header: UpdateGroupForbiddenRequest, connection: Connection) -> Answer:
        """Forbid a group to read a topic, allow it again, or only say what it may do."""
        groups = self._context.groups
        if header.readable is not None:
            raise_if(groups.refuse(header.group) or self._context.topics.refuse(header.topic))
            raise_if(groups.refuse_to_forbid(header.group, header.topic))
            log.info(
                "%s sets %s of group %s to readable=%s",
                *(connection.remote_address, header.topic, header.group, header.readable),
            )
            groups.forbid(header.group, header.topic, on=not header.readable)
            await self._context.group_file.saved()
        readable = not groups.is_forbidden(header.group, header.topic)
        said = _Forbidden(header.group, header.topic, readable)
        return Answer(remark="", body=dumps_table(said, pretty=False))


def _refuse_numbers(group: SubscriptionGroupConfig) -> str | None:
    """Why these settings cannot be stored: each number has to fit where Apache's broker keeps it."""
    if not 0 <= group.retry_queue_nums <= MAX_RETRY_QUEUES:
        return f"retryQueueNums {str(group.retry_queue_nums)[:40]} has to be from 0 to {MAX_RETRY_QUEUES}"
    if max(abs(group.retry_max_times), abs(group.consume_timeout_minute)) > LARGEST_INT:
        return "retryMaxTimes or consumeTimeoutMinute does not fit in 32 bits"
    if any(abs(number) > LARGEST_LONG for number in _numbers(msgspec.to_builtins(group))):
        return f"a number among the settings of group {group.group_name} does not fit in 64 bits"
    return None


def _numbers(value: object) -> Iterator[int]:
    """All integers in a value, at whatever depth."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
