"""Apache's client as a reader and writer of whole brokers; `java/StoreShell.java` is the other end.

Rules kept here:
- What the client read comes back as the same values that our own readers make.
- A command that failed there fails here, with what it printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import msgspec

from cometmq.model.message import Host, StoredMessage
from tests.compat.jvm import JavaError, JavaShell
from tests.compat.store.store_messages import without_checksum

FAILED = "failed: "


class Ack(NamedTuple):
    """What a producer was told about a message that the broker has."""

    queue_id: int
    queue_offset: int
    offset_id: str


class StoreShell(JavaShell):
    """A client that reads and writes through one name server."""

    program = "StoreShell"

    def __init__(self, home: Path, namesrv: str) -> None:
        super().__init__(home)
        self.namesrv = namesrv

    def read(self, group: str, topics: Iterable[str]) -> list[StoredMessage]:
        """Every message of every queue of these topics."""
        return self._messages("read", group, *topics)

    def find_key(self, topic: str, *keys: str) -> list[StoredMessage]:
        return self._messages("key", topic, *keys)

    def find_unique(self, topic: str, *unique_ids: str) -> list[StoredMessage]:
        return self._messages("unique", topic, *unique_ids)

    def at_place(self, topic: str, *offset_ids: str) -> list[StoredMessage]:
        """What is at the places in the log that offset ids name."""
        return self._messages("place", topic, *offset_ids)

    def progress(self, group: str, topic: str) -> list[int]:
        """How far a group is, by queue."""
        return [int(line) for line in self._run("progress", group, topic)]

    def send(self, topic: str) -> list[Ack]:
        """Send a message of every kind that a producer makes."""
        return [_ack(line) for line in self._run("send", topic)]

    def pour(self, topic: str, *, threads: int) -> Iterator[Ack]:
        """Send without end, until the broker is gone; acknowledgements come while that goes on."""
        return map(_ack, self._run("pour", topic, str(threads)))

    def _messages(self, command: str, *args: str) -> list[StoredMessage]:
        return [_message(line) for line in self._run(command, *args)]

    def _run(self, command: str, *args: str) -> Iterator[str]:
        trouble = ""
        for line in self.lines(command, self.namesrv, *args):
            if line.startswith(FAILED):
                trouble = line
            else:
                yield line.rstrip("\n")
        if trouble:
            raise JavaError(f"{command} {args}: {trouble}")


def _message(line: str) -> StoredMessage:
    message = msgspec.json.decode(line, type=StoredMessage)
    # Java writes all zeros of an IPv6 address.
    born_host = Host(str(ip_address(message.born_host.ip)), message.born_host.port)
    return without_checksum(msgspec.structs.replace(message, born_host=born_host))


def _ack(line: str) -> Ack:
    _, queue_id, queue_offset, offset_id = line.split()
    return Ack(int(queue_id), int(queue_offset), offset_id)
