"""What an administrator does to consumer groups: make, change, list, forbid and delete them.

Rules kept here: who changes a group hears of success when the change is on the disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.broker.topic_names import refuse_group
from cometmq.model.errors import CometError
from cometmq.model.subscription import SubscriptionGroupConfig
from cometmq.model.topic import DataVersion
from cometmq.remoting.connection import Connection
from cometmq.remoting.handler import Answer, NoHeader, handles
from cometmq.store.config_tables import SubscriptionGroupTable
from cometmq.wire.bodies.json_body import decode_json_body
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.command import Command
from cometmq.wire.fastjson_pretty import dumps_table
from cometmq.wire.headers.group import (
    DeleteSubscriptionGroupRequest,
    GetAllSubscriptionGroupRequest,
    GetAllSubscriptionGroupResponse,
    GetSubscriptionGroupConfigRequest,
    UpdateGroupForbiddenRequest,
)

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

log = logging.getLogger("cometmq.broker")

MOST_AT_ONCE: Final = 2000


class _GroupList(msgspec.Struct, rename="camel"):
    group_config_list: list[SubscriptionGroupConfig] = []


class _Forbidden(msgspec.Struct, rename="camel"):
    """What a group may do with a topic."""

    group: str
    topic: str
    readable: bool


class GroupAdminHandlers:
    """Consumer groups of this broker."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, NoHeader)
    async def update(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """Make a group or change it."""
        with self._state.traffic.group_creations.measured():
            return await self._put([decode_json_body(SubscriptionGroupConfig, request.body)], connection)

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, NoHeader)
    async def update_list(self, header: NoHeader, request: Command, connection: Connection) -> Answer:
        """The same for several groups: all of them, or none."""
        with self._state.traffic.group_creations.measured():
            return await self._put(decode_json_body(_GroupList, request.body).group_config_list, connection)

    async def _put(self, groups: list[SubscriptionGroupConfig], connection: Connection) -> Answer:
        for group in groups:
            refusal = refuse_group(group.group_name)
            if refusal is not None:
                raise CometError(refusal, code=ResponseCode.INVALID_PARAMETER)
            log.info("%s updates group %s", connection.remote_address, group.group_name)
        if not self._state.groups.has_room_for(group.group_name for group in groups):
            raise CometError(
                f"this broker has {len(self._state.groups.table)} groups, {len(groups)} more are too many; "
                "delete groups that nobody needs, or raise maxSubscriptionGroups",
                code=ResponseCode.INVALID_PARAMETER,
            )
        if groups:
            self._state.groups.update_all(groups)
            await self._state.group_file.saved()
        return Answer()

    @handles(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequest)
    async def delete(
        self, header: DeleteSubscriptionGroupRequest, request: Command, connection: Connection
    ) -> Answer:
        """Forget a group, and how far it is if that is wanted."""
        log.info("%s deletes group %s", connection.remote_address, header.group_name)
        self._state.groups.delete(header.group_name)
        if header.clean_offset:
            self._state.offsets.remove(header.group_name)
        if self._state.config.auto_delete_unused_stats:
            self._state.statistics.forget_group(header.group_name)
        await self._state.group_file.saved()
        return Answer()

    @handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequest)
    def get(
        self, header: GetSubscriptionGroupConfigRequest, request: Command, connection: Connection
    ) -> Answer:
        """How one group is set up."""
        group = self._state.groups.find(header.group)
        if group is None:
            return Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="No group in this broker")
        return Answer(body=dumps_table(group, pretty=False))

    @handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllSubscriptionGroupRequest)
    def get_all(
        self, header: GetAllSubscriptionGroupRequest, request: Command, connection: Connection
    ) -> Answer:
        """All groups, or a page of them."""
        groups = self._state.groups
        if header.group_seq is None:
            return Answer(body=dumps_table(groups.snapshot(), pretty=False))
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
        return Answer(header=total, body=dumps_table(page, pretty=False))

    @handles(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, UpdateGroupForbiddenRequest)
    async def forbid(
        self, header: UpdateGroupForbiddenRequest, request: Command, connection: Connection
    ) -> Answer:
        """Forbid a group to read a topic, allow it again, or only say what it may do."""
        groups = self._state.groups
        if header.readable is not None:
            log.info(
                "%s sets %s of group %s to readable=%s",
                *(connection.remote_address, header.topic, header.group, header.readable),
            )
            groups.forbid(header.group, header.topic, on=not header.readable)
            await self._state.group_file.saved()
        readable = not groups.is_forbidden(header.group, header.topic)
        said = _Forbidden(header.group, header.topic, readable)
        return Answer(remark="", body=dumps_table(said, pretty=False))
