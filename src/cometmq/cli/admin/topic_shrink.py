"""What a topic with fewer queues hides: messages that are there, and that nobody is given any more.

Rules kept here:
- Messages in a queue that consumers have no more are lost to every group that has not read them. They stay in
  the store until they expire, and are there again when the topic has its queues back.
- What a group has committed is read; where it has committed nothing, nothing is. If no group reads the topic,
  everything is unread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cometmq.cli.admin.topic_data import HiddenQueue
from cometmq.cli.common.output import counted, print_table
from cometmq.model.errors import CometError
from cometmq.model.queue import MessageQueue

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin


async def hidden_queues(admin: Admin, topic: str, queues: int, broker: str | None) -> list[HiddenQueue]:
    """What would be hidden if a topic had so many queues, on its brokers or on the one that is named."""
    status = await admin.topic_status(topic)
    gone = {
        queue: each
        for queue, each in status.items()
        if queue.queue_id >= queues and each.max_offset > each.min_offset
        if broker is None or queue.broker_name == broker
    }
    if not gone:
        return []
    groups = await admin.groups_of_topic(topic)
    read: dict[str, dict[MessageQueue, int]] = {}
    for group in groups:
        try:
            progress = await admin.consumer_progress(group, topic)
        except CometError:  # nothing is known of it, so nothing is read
            progress = {}
        read[group] = {queue: at.consumer_offset for queue, at in progress.items()}
    hidden = []
    for queue, each in gone.items():
        unread = {
            group: each.max_offset - max(offsets.get(queue, 0), each.min_offset)
            for group, offsets in read.items()
        }
        unread = {group: count for group, count in unread.items() if count > 0}
        if unread or not groups:
            messages = each.max_offset - each.min_offset
            hidden.append(HiddenQueue(queue.broker_name, queue.queue_id, messages, unread))
    return hidden


def show_hidden(hidden: Sequence[HiddenQueue]) -> None:
    """Tell a person what would be hidden."""
    rows = [
        (each.broker_name, each.queue_id, each.messages, group or "no group reads the topic", unread)
        for each in hidden
        for group, unread in (each.unread or {"": each.messages}).items()
    ]
    titles = ("broker", "queue", "messages", "group", "unread")
    print_table(titles, rows, right=("queue", "messages", "unread"), marked=("broker",), to_errors=True)


def question(topic: str, queues: int, hidden: Sequence[HiddenQueue]) -> str:
    """What to ask before that is done."""
    most = sum(max(each.unread.values(), default=each.messages) for each in hidden)
    return (
        f"With {counted(queues, 'queue')} consumers of {topic} are not given "
        f"{counted(most, 'message')} that are unread in {counted(len(hidden), 'queue')}. To have them read "
        f"first: cometmq topic update {topic} --write-queues {queues}, and --queues {queues} when they are. "
        "Hide them?"
    )
