"""A message and the clients it concerns: `cometmq message track`, `consume` and `resume-check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cometmq.cli.admin.message_read import message_of_id
from cometmq.cli.common.connect import NO_LINK, AsJson, Link, ask
from cometmq.cli.common.output import FAILED, Column, listed, told
from cometmq.model.errors import NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.model.message import StoredMessage
    from cometmq.wire.bodies.consumer_info import ConsumeDirectlyResult

MessageId = Annotated[str, typer.Argument(help="Message id or offset id.", metavar="ID")]
OfTopic = Annotated[
    str | None, typer.Option("--topic", help="Its topic; needed for a message id.", metavar="TOPIC")
]


class TrackLine(msgspec.Struct, rename="camel"):
    """What became of a message in one group."""

    group: Annotated[str, Column("group")]
    track_type: Annotated[str, Column("state", lambda name: name.lower().replace("_", " "))]
    consumer_offset: Annotated[int | None, Column("at")]


def track(msg_id: MessageId, topic: OfTopic = None, link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """Show which groups have consumed a message.

    Examples:
      cometmq message track 7F00000100002A9F0000000000000000
      cometmq message track 0A0B0C0D00016D06F69C1A2B3C4D0000 --topic orders

    It compares the offsets of groups with the message: a group that is past it has consumed it, or has put it
    among its retries. "message trace" shows single consumptions.
    """

    async def work(admin: Admin) -> tuple[StoredMessage, list[TrackLine]]:
        message = await message_of_id(admin, msg_id, topic)
        tracks = await admin.message_tracks(message)
        return message, [TrackLine(each.group, each.track_type, each.consumer_offset) for each in tracks]

    message, found = ask(link, work)
    document = {
        "msgId": message.msg_id,
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "groups": found,
    }
    place = f"{message.topic} in {message.broker_name}:{message.queue_id}@{message.queue_offset}"
    closing = f"{place} has been read by these groups" if found else f"no group reads {place}"
    listed(document, TrackLine, found, as_json=as_json, closing=closing)


def consume(
    msg_id: MessageId,
    group: Annotated[str, typer.Option("--group", help="The consumer group.", metavar="GROUP")],
    topic: OfTopic = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="The member; default: one of the group.", metavar="CLIENT_ID"),
    ] = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Have a member of a group consume a message now.

    Examples:
      cometmq message consume 7F00000100002A9F0000000000000000 --group billing
      cometmq message consume 0A0B0C0D00016D06F69C1A2B3C4D0000 \\
        --topic orders --group billing --client 10.0.0.7@4711

    The listener gets the message, whether it had it before or not. No offset moves, and a failure brings no
    retry. The exit code is 1 if the listener did not consume it, and 4 if no member is connected.
    """

    async def work(admin: Admin) -> tuple[str, ConsumeDirectlyResult]:
        message = await message_of_id(admin, msg_id, topic)
        member = client or await _a_member(admin, message.broker_name, group)
        return member, await admin.consume_directly(group, member, message)

    member, result = ask(link, work)
    document = {
        "group": group,
        "clientId": member,
        "result": result.consume_result,
        "remark": result.remark,
        "order": result.order,
        "spentMs": result.spent_time_mills,
    }
    remark = f": {result.remark}" if result.remark else ""
    took = f"{member} answers {result.consume_result} after {result.spent_time_mills} ms{remark}"
    told(document, took, as_json=as_json)
    if result.consume_result not in ("CR_SUCCESS", "CR_COMMIT"):
        raise typer.Exit(FAILED)


async def _a_member(admin: Admin, broker_name: str, group: str) -> str:
    master = (await admin.masters()).get(broker_name)
    connection = None if master is None else await admin.group_connection(master, group)
    members = sorted(each.client_id for each in connection.connection_set) if connection else []
    if not members:
        raise NotFoundError(f"no member of group {group} is connected; see: cometmq group progress {group}")
    return members[0]


def resume_check(
    msg_id: MessageId, topic: OfTopic = None, link: Link = NO_LINK, as_json: AsJson = False
) -> None:
    """Have a broker check a half message again that it gave up.

    Examples:
      cometmq message tail TRANS_CHECK_MAX_TIME_TOPIC --json | jq -r .offsetMsgId
      cometmq message resume-check 7F00000100002A9F0000000000000000

    A broker that has checked a half message too often without an answer moves it to
    TRANS_CHECK_MAX_TIME_TOPIC.
    """

    async def work(admin: Admin) -> StoredMessage:
        message = await message_of_id(admin, msg_id, topic)
        await admin.resume_half_check(message.offset_msg_id)
        return message

    found = ask(link, work)
    document = {"msgId": found.msg_id, "offsetMsgId": found.offset_msg_id, "brokerName": found.broker_name}
    told(document, f"{found.broker_name} checks {found.msg_id} again", as_json=as_json)
