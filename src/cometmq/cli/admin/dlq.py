"""`cometmq dlq`: list and show dead letters, and send them again (redrive).

Rules kept here: `redrive` can be interrupted at any moment and started again, and sends no message twice. A
message that could not be sent is named with its reason, and makes the exit code 1.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cometmq.cli.admin.message import as_dict, line_of
from cometmq.cli.admin.message_format import Format, format_of
from cometmq.cli.admin.message_read import last_messages
from cometmq.cli.commands import CommandGroup
from cometmq.cli.common.connect import NO_LINK, AsJson, Link, Yes, ask, run
from cometmq.cli.common.output import (
    FAILED,
    INTERRUPTED,
    Column,
    confirm,
    listed,
    note,
    print_json,
    say,
    time_text,
)
from cometmq.model.errors import NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin
    from cometmq.client.admin.redrive import Step
    from cometmq.model.message import StoredMessage

app = CommandGroup("dlq")

Group = Annotated[str, typer.Argument(help="The group that could not consume them.", metavar="GROUP")]


MOST_FAILURES: Final = 1_000
"""The most failures in the JSON; all are counted, and named on standard error."""


class DeadLetters(msgspec.Struct, rename="camel"):
    """The dead letters of one group."""

    group: Annotated[str, Column("group")]
    messages: Annotated[int, Column("dead letters")]
    redriven: Annotated[int, Column("redriven")]
    waiting: Annotated[int, Column("waiting")]
    last_timestamp: Annotated[int, Column("last (UTC)", time_text)]


class Redriven(msgspec.Struct, rename="camel"):
    """The result of `redrive`."""

    group: str
    dry_run: bool
    sent: int = 0
    already: int = 0
    failed: int = 0
    complete: bool = False
    """False if a limit, an interruption or an error ended it early."""
    failures: list[dict[str, str | int | None]] = []


async def _dead_letters(admin: Admin) -> list[DeadLetters]:
    from cometmq.client.admin.admin import for_each
    from cometmq.client.admin.redrive import dead_letter_topic, progress_group
    from cometmq.model.names import DLQ_PREFIX

    async def of(group: str) -> DeadLetters:
        status = await admin.topic_status(dead_letter_topic(group))
        line = DeadLetters(group, 0, 0, 0, 0)
        for queue, each in status.items():
            at = max(await admin.consumer_offset(progress_group(group), queue) or 0, each.min_offset)
            line.messages += each.max_offset - each.min_offset
            line.redriven += at - each.min_offset
            line.last_timestamp = max(line.last_timestamp, each.last_update_timestamp)
        line.waiting = line.messages - line.redriven
        return line

    groups = [topic[len(DLQ_PREFIX) :] for topic in await admin.topics() if topic.startswith(DLQ_PREFIX)]
    return list((await for_each(groups, of)).values())


@app.command("list")
def list_groups(link: Link = NO_LINK, as_json: AsJson = False) -> None:
    """List groups with dead letters.

    Examples:
      cometmq dlq list -n 127.0.0.1:9876
      cometmq dlq list --json | jq '.groups[] | select(.waiting > 0)'
    """
    found = ask(link, _dead_letters)
    listed({"groups": found}, DeadLetters, found, as_json=as_json)


@app.command()
def show(
    group: Group,
    limit: Annotated[int, typer.Option("--limit", "-l", help="Number of messages.", min=1)] = 20,
    template: Format = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Print the last dead letters of a group, with their original topics.

    Examples:
      cometmq dlq show billing -n 127.0.0.1:9876
      cometmq dlq show billing --limit 100 --json | jq -r .text
      cometmq dlq show billing --format '%i %r %s\\n'
    """
    style = format_of(template, as_json=as_json)

    async def work(admin: Admin) -> tuple[list[StoredMessage], int]:
        from cometmq.client.admin.redrive import dead_letter_topic

        topic = dead_letter_topic(group)
        if await admin.topic_route(topic) is None:
            raise NotFoundError(f"group {group} has no dead letters; see: cometmq dlq list")
        messages, _ = await last_messages(admin, topic, limit, "*")
        held = sum(each.max_offset - each.min_offset for each in (await admin.topic_status(topic)).values())
        return messages, held

    found, held = ask(link, work)
    from cometmq.client.admin.redrive import origin_topic

    if style is not None:
        style.write(found)
    for message in found if style is None else ():
        if as_json:
            print_json({**as_dict(message), "originTopic": origin_topic(message)}, compact=True)
        else:
            say(f"{line_of(message)}  from {origin_topic(message) or 'an unknown topic'}")
    if held > len(found):
        note(f"these are the last {len(found)} of {held}; --limit shows more")


@app.command()
def redrive(
    group: Group,
    to: Annotated[
        str | None,
        typer.Option("--to", help="Send to this topic, not to the original ones.", metavar="TOPIC"),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Maximum messages per second.", metavar="N", min=0.01)
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Maximum number of messages.", metavar="N", min=1)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the messages.")] = False,
    yes: Yes = False,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Send the dead letters of a group to their topics again.

    Examples:
      cometmq dlq redrive billing --dry-run -n 127.0.0.1:9876
      cometmq dlq redrive billing --rate 50 --yes
      cometmq dlq redrive billing --to orders-repair --limit 10 --yes --json

    Each dead letter is sent once, also if the command is interrupted and started again. It stays among the
    dead letters until it expires. The exit code is 1 if some could not be sent; the next run tries those
    again.
    """
    if not dry_run:
        where = to or "their original topics"
        confirm(f"Send the dead letters of {group} to {where} again?", yes=yes)
    result = Redriven(group, dry_run)

    def report(step: Step) -> None:
        _count(result, step)
        if step.outcome == "failed":
            note(f"{step.dead.msg_id} was not sent to {step.topic or 'any topic'}: {step.reason}")
        elif dry_run and step.outcome == "wouldSend" and not as_json:
            say(f"{line_of(step.dead)}  to {step.topic}")

    async def work() -> bool:
        from cometmq.client.admin.admin import Admin
        from cometmq.client.admin.redrive import Redrive, RedriveProducer

        options, timeout_ms = link.options(), int(link.timeout_s * 1000)
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(Admin(**options))
            producer = None
            if not dry_run:
                made = RedriveProducer(
                    "cometmq-redrive", send_timeout_ms=timeout_ms, retry_times=0, **options
                )
                producer = await stack.enter_async_context(made)
            return await Redrive(admin, producer, group, to=to, rate=rate, limit=limit).run(report)

    try:
        result.complete = not run(work())
    except KeyboardInterrupt:
        _show_result(result, as_json=as_json)
        raise typer.Exit(INTERRUPTED) from None
    _show_result(result, as_json=as_json)
    if result.failed:
        raise typer.Exit(FAILED)


def _count(result: Redriven, step: Step) -> None:
    if step.outcome == "already":
        result.already += 1
    elif step.outcome == "failed":
        result.failed += 1
        if len(result.failures) == MOST_FAILURES:
            return
        result.failures.append(
            {
                "msgId": step.dead.msg_id,
                "brokerName": step.dead.broker_name,
                "queueId": step.dead.queue_id,
                "queueOffset": step.dead.queue_offset,
                "topic": step.topic,
                "reason": step.reason,
            }
        )
    else:
        result.sent += 1


def _show_result(result: Redriven, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    verb = "would be sent" if result.dry_run else "were sent"
    say(f"{result.sent} {verb}, {result.already} had been sent before, {result.failed} failed")
    if not result.complete:
        say("these are not all; start it again to go on")
