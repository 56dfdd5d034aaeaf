"""Facts of a cluster, gathered once for all checks, and the findings of the checks.

Rules kept here:
- A server that does not answer is a fact; nothing here ends the examination.
- At most `limit` topics and as many groups are looked at; `notes` says how many were left out.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from cometmq.cli.admin.topic_data import is_user_topic
from cometmq.client.admin.admin import for_each
from cometmq.client.admin.results import ClusterInfo, GroupConnection, MemberInfo, QueueProgress, QueueStatus
from cometmq.client.names import is_system_group
from cometmq.model.errors import CometError, RemotingError
from cometmq.model.java_numbers import java_int, natural_long
from cometmq.model.names import DLQ_PREFIX
from cometmq.model.queue import MessageQueue
from cometmq.model.route import MASTER_ID, TopicRoute
from cometmq.model.topic import TopicConfig

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

MOST_MEMBERS: Final = 50
_RUNTIME: Final = re.compile(r"(-?\d+) days?, (-?\d+) hours?, (-?\d+) minutes?, (-?\d+) seconds?")

T = TypeVar("T")
Progress = dict[str, dict[MessageQueue, QueueProgress]]


class Level(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Something does not work, or messages are in danger."""
    WARNING = "warning"
    """It works, but not for long, or not as expected."""


class Finding(msgspec.Struct, frozen=True):
    """A problem, and the advice against it."""

    check: str
    """The name of the check; stable, for programs."""
    level: Level
    subject: str
    """The name or address of the thing in trouble."""
    text: str
    advice: str


def error(check: str, subject: str, text: str, advice: str) -> Finding:
    return Finding(check, Level.ERROR, subject, text, advice)


def warning(check: str, subject: str, text: str, advice: str) -> Finding:
    return Finding(check, Level.WARNING, subject, text, advice)


class BrokerFacts(msgspec.Struct, kw_only=True):
    """A broker: its registration and its answers."""

    cluster: str
    name: str
    broker_id: int
    address: str
    error: CometError | None = None
    info: Mapping[str, str] = {}
    config: Mapping[str, str] = {}
    topics: Mapping[str, TopicConfig] = {}
    clock_ahead_ms: int | None = None
    """How far its clock is ahead of ours, beyond the time that the request took."""

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    @property
    def is_reachable(self) -> bool:
        return not isinstance(self.error, RemotingError)


class GroupFacts(msgspec.Struct, kw_only=True):
    """One consumer group."""

    connections: Mapping[str, GroupConnection] = {}
    """By broker name."""
    members: Mapping[str, MemberInfo] = {}
    """The answers of members, by client id."""


class Facts(msgspec.Struct, kw_only=True):
    """The input of all checks."""

    cluster: str | None = None
    name_servers: dict[str, ClusterInfo | CometError] = {}
    brokers: list[BrokerFacts] = []
    strangers: list[BrokerFacts] = []
    """Brokers named by their address that no name server knows."""
    routes: dict[str, TopicRoute] = {}
    statuses: dict[str, dict[MessageQueue, QueueStatus]] = {}
    groups: dict[str, GroupFacts] = {}
    notes: list[str] = []

    @property
    def masters(self) -> list[BrokerFacts]:
        """The masters that answer."""
        return [broker for broker in self.brokers if broker.is_master and broker.is_reachable]

    @property
    def own_names(self) -> set[str]:
        """The names of brokers and clusters; every broker has topics of these names."""
        return {name for broker in self.brokers for name in (broker.name, broker.cluster)}

    def user_topics(self) -> list[str]:
        """The topics that users made."""
        names = {topic for broker in self.masters for topic in broker.topics}
        return sorted(topic for topic in names if is_user_topic(topic, self.own_names))


async def gather(admin: Admin, cluster: str | None, limit: int, addresses: Sequence[str] = ()) -> Facts:
    """Ask all servers, and the brokers at these addresses, whether or not they are registered."""
    facts = Facts(cluster=cluster)
    facts.name_servers = await for_each(admin.name_servers(), lambda address: _ask_namesrv(admin, address))
    known: dict[tuple[str, int, str], BrokerFacts] = {}
    for info in facts.name_servers.values():
        for name, data in info.broker_addr_table.items() if isinstance(info, ClusterInfo) else ():
            for broker_id, address in data.broker_addrs.items():
                known[name, broker_id, address] = BrokerFacts(
                    cluster=data.cluster, name=name, broker_id=broker_id, address=address
                )
    facts.brokers = [known[key] for key in sorted(known) if cluster is None or known[key].cluster == cluster]
    registered = {address for _, _, address in known}
    facts.strangers = [
        BrokerFacts(cluster="", name=address, broker_id=MASTER_ID, address=address)
        for address in dict.fromkeys(addresses)
        if address not in registered
    ]
    await asyncio.gather(*(_ask_broker(admin, broker) for broker in [*facts.brokers, *facts.strangers]))
    await _ask_about_topics(admin, facts, limit)
    await _ask_about_groups(admin, facts, limit)
    return facts


async def _ask_namesrv(admin: Admin, address: str) -> ClusterInfo | CometError:
    try:
        return await admin.cluster_info(address)
    except CometError as error:
        return error


async def _attempt(answer: Awaitable[T]) -> T | None:
    """The answer of a server; None if it refuses or cannot be reached."""
    try:
        return await answer
    except CometError:
        return None


async def _ask_broker(admin: Admin, broker: BrokerFacts) -> None:
    try:
        begun = time.time_ns() // 1_000_000
        broker.info = await admin.broker_info(broker.address)
        broker.clock_ahead_ms = clock_ahead(broker.info, begun, time.time_ns() // 1_000_000)
        broker.config = await admin.broker_config(broker.address)
        if broker.is_master:
            broker.topics = await admin.topic_configs(broker.address)
    except CometError as error:
        broker.error = error


def clock_ahead(info: Mapping[str, str], begun_ms: int, ended_ms: int) -> int | None:
    """How far a broker's clock is ahead: start time plus run time is its time, to the second."""
    found = _RUNTIME.search(info.get("runtime", ""))
    booted = natural_long(info.get("bootTimestamp"))
    if found is None or booted is None:
        return None
    days, hours, minutes, seconds = (java_int(part) or 0 for part in found.groups())
    earliest = booted + 1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days)))
    if earliest > ended_ms:
        return earliest - ended_ms
    return min(earliest + 1000 - begun_ms, 0)


async def _ask_about_topics(admin: Admin, facts: Facts, limit: int) -> None:
    topics = facts.user_topics()
    if len(topics) > limit:
        facts.notes.append(f"only {limit} of {len(topics)} topics were looked at; --limit changes that")
    names = [broker.name for broker in facts.masters]
    routes = await for_each([*topics[:limit], *names], lambda topic: _attempt(admin.topic_route(topic)))
    facts.routes = {topic: route for topic, route in routes.items() if route is not None}
    statuses = await for_each(topics[:limit], lambda topic: _attempt(admin.topic_status(topic)))
    facts.statuses = {topic: status for topic, status in statuses.items() if status is not None}


async def _ask_about_groups(admin: Admin, facts: Facts, limit: int) -> None:
    names: set[str] = set()
    for broker in facts.masters:
        try:
            names.update(await admin.groups(broker.address))
        except CometError as error:
            broker.error = broker.error or error
    wanted = sorted(name for name in names if not is_system_group(name))
    if len(wanted) > limit:
        facts.notes.append(f"only {limit} of {len(wanted)} groups were looked at; --limit changes that")
    facts.groups = await for_each(wanted[:limit], lambda group: _group(admin, facts, group))


async def _group(admin: Admin, facts: Facts, group: str) -> GroupFacts:
    connections: dict[str, GroupConnection] = {}
    members: dict[str, MemberInfo] = {}
    for broker in facts.masters:
        connection = await _attempt(admin.group_connection(broker.address, group))
        if connection is None:
            continue
        connections[broker.name] = connection
        if len(connection.connection_set) < 2:
            continue  # alone, nobody can differ from others
        for member in connection.connection_set[:MOST_MEMBERS]:
            id_ = member.client_id
            if id_ not in members and (
                info := await _attempt(admin.member_info(broker.address, group, id_))
            ):  # old clients, and those that are just leaving, have none
                members[id_] = info
    return GroupFacts(connections=connections, members=members)


async def progress_of(admin: Admin, facts: Facts) -> Progress:
    """The progress of all groups, without dead letters, which nobody has to read."""
    progress: Progress = {}
    for broker in facts.masters:
        table = await _attempt(admin.broker_progress(broker.address))
        for group, queues in (table or {}).items():
            if group in facts.groups:
                kept = {queue: at for queue, at in queues.items() if not queue.topic.startswith(DLQ_PREFIX)}
                progress.setdefault(group, {}).update(kept)
    return progress
