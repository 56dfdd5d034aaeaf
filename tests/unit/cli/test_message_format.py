"""Formats of messages: `cometmq message tail --format`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.cli.admin.message_format import PLACEHOLDERS, MessageFormat
from cometmq.cli.common.output import UsageError
from cometmq.model.message import Host, StoredMessage

MESSAGE = StoredMessage(
    topic="orders",
    body=b"\xff\x00body",
    properties={"KEYS": "k1 k2", "TAGS": "paid", "UNIQ_KEY": "0A" * 16, "region": "EU"},
    broker_name="broker-a",
    queue_id=3,
    queue_offset=42,
    commit_log_offset=1000,
    store_size=200,
    body_crc=0,
    flag=0,
    sys_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    born_host=Host("10.0.0.1", 1234),
    store_timestamp_ms=1_700_000_000_007,
    store_host=Host("10.0.0.2", 10911),
    reconsume_times=2,
    prepared_transaction_offset=0,
    offset_msg_id="0A00000200002A9F00000000000003E8",
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (r"%t %p %o %k %s\n", b"orders 3 42 k1 k2 \xff\x00body\n"),
        (r"%b:%p@%o %g", b"broker-a:3@42 paid"),
        (r"%S %K %R%s", b"6 5 \0\0\0\x06\xff\x00body"),
        (r"%T %B %r", b"1700000000007 1700000000000 2"),
        (r"%i %I", b"0A" * 16 + b" 0A00000200002A9F00000000000003E8"),
        (r"%h", b"KEYS=k1 k2,TAGS=paid,UNIQ_KEY=" + b"0A" * 16 + b",region=EU"),
        (r"100%%\t\x41\\\0é", "100%\tA\\\0é".encode()),
        ("", b""),
    ],
)
def test_a_message_is_written_in_the_format(text: str, written: bytes) -> None:
    """Bodies as they are, byte by byte, and nothing else."""
    assert MessageFormat(text).bytes_of(MESSAGE) == written


@pytest.mark.parametrize("text", ["%z", "%", "\\q", "\\", "\\x4"])
def test_what_a_format_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--format has no "):
        MessageFormat(text)


def test_every_placeholder_is_documented() -> None:
    document = (Path(__file__).parents[3] / "docs" / "CLI.md").read_text(encoding="utf-8")
    assert all(f"`%{letter}`" in document for letter in PLACEHOLDERS)
