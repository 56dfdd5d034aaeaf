"""Checks of consumer groups: equal subscriptions, lag, stuck queues.

Rules kept here: a lag alone is no finding, as the group may be catching up. It is one if it grows without
members, or if a message waits long and no offset moves between two looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.cli.common.times import now_ms
from cometmq.cli.doctor.facts import Facts, Finding, GroupFacts, Progress, error, progress_of, warning
from cometmq.model.errors import CometError
from cometmq.model.names import RETRY_PREFIX
from cometmq.model.queue import MessageQueue, lag_of

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.admin.results import QueueProgress

MOST_QUEUES: Final = 200
"""The most queues whose first waiting message is read."""


class Waiting(msgspec.Struct, frozen=True):
    """The first message of a queue that waits for a group."""

    age_ms: int
    expired: int
    """Messages before it that were deleted unread."""


def check_subscriptions(facts: Facts) -> Iterator[Finding]:
    """Members of a group share the queues of all its topics, so all need the same subscriptions."""
    for group, found in facts.groups.items():
        difference = _difference(found)
        if difference is not None:
            yield error(
                "subscriptions-differ",
                group,
                f"the members of group {group} subscribe to different things: {difference}; "
                "each gets only a part of what it wants, and messages are passed over",
                "have all members subscribe to the same, or give them groups of their own",
            )


def _difference(found: GroupFacts) -> str | None:
    said = next((each.difference for each in found.connections.values() if each.difference), None)
    if said is not None:
        return said
    first: tuple[str, dict[str, str]] | None = None
    for client_id, info in sorted(found.members.items()):
        reads = {
            each.topic: f"{each.sub_string} ({each.expression_type or 'TAG'})"
            for each in info.subscription_set
            if not each.topic.startswith(RETRY_PREFIX)
        }
        if not reads:
            continue  # it has just come
        if first is None:
            first = client_id, reads
        elif first[1] != reads:
            return f"{first[0]} reads {_text(first[1])}, and {client_id} reads {_text(reads)}"
    return None


def _text(reads: dict[str, str]) -> str:
    return ", ".join(f"{topic} {expression}" for topic, expression in sorted(reads.items()))


def unread(at: QueueProgress) -> int:
    """What waits for a group: its lag, or the whole queue as long as it has no offset and may hang there."""
    return lag_of(at.broker_offset, at.consumer_offset)


async def check_lag(admin: Admin, facts: Facts, *, sample_s: float, behind_s: float) -> list[Finding]:
    """Look at all groups, and a little later again at those with a lag."""
    before = await progress_of(admin, facts)
    lagging = {group for group, queues in before.items() if any(map(unread, queues.values()))}
    if not lagging:
        return []
    await asyncio.sleep(sample_s)
    after = await progress_of(admin, facts)
    waiting = await _first_waiting(admin, facts, {group: after.get(group, {}) for group in lagging})
    return [
        finding
        for group in sorted(lagging)
        for finding in _judge(group, facts, before, after, waiting.get(group, {}), behind_s * 1000)
    ]


async def _first_waiting(
    admin: Admin, facts: Facts, progress: Progress
) -> dict[str, dict[MessageQueue, Waiting]]:
    found: dict[str, dict[MessageQueue, Waiting]] = {}
    lagging = [
        (group, queue, at.consumer_offset)
        for group, queues in progress.items()
        for queue, at in queues.items()
        if unread(at)
    ]
    if len(lagging) > MOST_QUEUES:
        facts.notes.append(f"only {MOST_QUEUES} of {len(lagging)} queues with a lag were looked into")
    for group, queue, offset in lagging[:MOST_QUEUES]:
        try:
            reply = await admin.read(queue, max(offset, 0), max_messages=1)
            if not reply.messages and reply.next_offset > offset:
                reply = await admin.read(queue, reply.next_offset, max_messages=1)
        except CometError:
            continue
        if reply.messages:
            message = reply.messages[0]
            expired = max(reply.min_offset - offset, 0) if offset > 0 else 0
            waiting = Waiting(now_ms() - message.store_timestamp_ms, expired)
            found.setdefault(group, {})[queue] = waiting
    return found


def _judge(
    group: str,
    facts: Facts,
    before: Progress,
    after: Progress,
    waiting: dict[MessageQueue, Waiting],
    behind_ms: float,
) -> Iterator[Finding]:
    lag_before = sum(map(unread, before[group].values()))
    lag = sum(map(unread, after.get(group, {}).values()))
    expired = sum(each.expired for each in waiting.values())
    if expired:
        yield error(
            "expired-unread",
            group,
            f"{expired} messages were deleted before group {group} read them",
            "have the group keep up, or keep messages longer (fileReservedTime)",
        )
    if not facts.groups[group].connections:
        if lag > lag_before:
            yield error(
                "lag-without-members",
                group,
                f"group {group} has no members, and what waits for it grows: {lag} messages",
                f"start its consumers; if it is not used any more: cometmq group delete {group} --offsets",
            )
        return
    stuck = [
        queue
        for queue, at in after.get(group, {}).items()
        if queue in waiting
        and waiting[queue].age_ms > behind_ms
        and before[group].get(queue) is not None
        and before[group][queue].consumer_offset == at.consumer_offset
    ]
    oldest_s = max((each.age_ms for each in waiting.values()), default=0) // 1000
    if stuck:
        yield error(
            "stuck-queues",
            group,
            f"group {group} has members and does not move in {len(stuck)} queues "
            f"({', '.join(map(str, stuck[:5]))}{', …' if len(stuck) > 5 else ''}); the oldest message waits "
            f"for {oldest_s} s",
            "see what the consumer of those queues does (a listener that hangs or always fails): "
            f"cometmq group members {group}",
        )
    elif lag > lag_before and oldest_s * 1000 > behind_ms:
        yield warning(
            "growing-lag",
            group,
            f"group {group} is {oldest_s} s behind, and falls further behind: {lag} messages wait",
            "start more consumers, up to one a queue, or make them faster",
        )
