"""Messages as commands show them.

Rules kept here: as JSON a message has the names that `cometmq store dump` gives it, and the name of its
broker; for people it is one line, and `print_whole` shows everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.cli.common.output import print_json, print_pairs, say, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cometmq.model.message import StoredMessage
    from cometmq.store.tools.dump import MessageDict

SHOWN_OF_BODY: Final = 200


def as_dict(message: StoredMessage) -> MessageDict:
    """A message for JSON."""
    from cometmq.store.tools.dump import message_dict

    return {**message_dict(message), "brokerName": message.broker_name}


def body_text(body: bytes, limit: int | None = SHOWN_OF_BODY) -> str:
    """The body on one line: as text if it is text, else in hexadecimal; a long one is cut, and says so."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = f"0x{body.hex()}"
    if not text.isprintable():
        text = repr(text)[1:-1]
    if limit is not None and len(text) > limit:
        return f"{text[:limit]}… ({len(body)} bytes)"
    return text


def line_of(message: StoredMessage) -> str:
    """One line: when, where, its id, tag and keys, and the beginning of its body."""
    place = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
    marks = [message.tags or "-", " ".join(message.keys) or "-"]
    return "  ".join(
        [time_text(message.store_timestamp_ms), place, message.msg_id, *marks, body_text(message.body)]
    )


def print_messages(messages: Iterable[StoredMessage], *, as_json: bool) -> None:
    """Messages of a stream: a line each, or a document on a line each."""
    for message in messages:
        if as_json:
            print_json(as_dict(message), compact=True)
        else:
            say(line_of(message))


def print_whole(message: StoredMessage) -> None:
    """Everything about one message."""
    print_pairs(
        [
            ("topic", message.topic),
            (
                "queue",
                f"{message.broker_name}:{message.queue_id}" if message.broker_name else message.queue_id,
            ),
            ("queue offset", message.queue_offset),
            ("message id", message.msg_id),
            ("offset id", message.offset_msg_id),
            ("tag", message.tags),
            ("keys", " ".join(message.keys)),
            ("born (UTC)", f"{time_text(message.born_timestamp_ms)} at {message.born_host}"),
            ("stored (UTC)", f"{time_text(message.store_timestamp_ms)} at {message.store_host}"),
            ("consumed before", message.reconsume_times),
            *((f"property {name}", value) for name, value in sorted(message.properties.items())),
            (f"body ({len(message.body)} bytes)", body_text(message.body, None)),
        ]
    )
