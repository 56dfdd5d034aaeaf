"""Runs `cometmq` in the process of a test, against whatever cluster the test has."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest import mock

import pytest

from cometmq import Admin, Message, Producer, PushConsumer
from cometmq.cli.main import main
from cometmq.wire.bodies.heartbeat import ConsumeFromWhere
from tests.waiting import wait_until

PATIENCE_S = 30.0


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The documents of a stream."""
        return [json.loads(line) for line in self.out.splitlines()]


class Cometmq:
    """The command, pointed at a cluster."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ended:
        out, err = io.StringIO(), io.StringIO()
        variables = {"COMETMQ_NAMESRV": self.namesrv}
        with (
            mock.patch.object(sys, "argv", ["cometmq", *arguments]),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
            mock.patch.dict(os.environ, variables),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())

    def ok(self, *arguments: str, stdin: bytes = b"") -> Ended:
        """Run a command that has to work."""
        ended = self(*arguments, stdin=stdin)
        assert ended.code == 0, f"{' '.join(arguments)}: {ended.err or ended.out}"
        return ended


def send_all(namesrv: str, messages: list[Message]) -> None:
    """Send messages, and wait until their topics show them."""
    with Producer("cli-tests", namesrv=namesrv) as producer:
        for message in messages:
            producer.send(message)


def make_dead_letters(namesrv: str, group: str, topic: str, messages: list[Message]) -> None:
    """Have a group fail to consume these messages, each at its only try."""
    admin = Admin(namesrv=namesrv)
    consumer = PushConsumer(
        group,
        namesrv=namesrv,
        max_reconsume_times=0,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )

    @consumer.subscribe(topic)
    def fail(message: Message) -> None:
        raise ValueError("this one cannot be consumed")

    def dead() -> int:
        if admin.topic_route(f"%DLQ%{group}") is None:
            return 0
        return sum(each.max_offset for each in admin.topic_status(f"%DLQ%{group}").values())

    send_all(namesrv, messages)
    with admin, consumer:
        wait_until(dead, "all are dead letters", lambda found: found >= len(messages))
