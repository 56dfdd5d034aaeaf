"""The properties of half messages, put together the short way: the same bytes as the long one gives."""

from __future__ import annotations

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.send import properties as half_sends
from cometmq.broker.send.properties import HalfMessageLayouts, StoredProperties, stored_block
from cometmq.broker.settings import Settings
from cometmq.wire.java_hash import tags_code
from cometmq.wire.record.properties import format_properties, parse_properties

ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "100% ours"}
HALF = {"TRAN_MSG": "true", "UNIQ_KEY": "0A01", "PGROUP": "shop"}


def half_sends_of(*, rejects: bool = False) -> HalfMessageLayouts:
    return HalfMessageLayouts(Settings(BrokerConfig(reject_transaction_message=rejects)), ADDED)


def read(
    halves: HalfMessageLayouts, text: str, topic: str = "Orders", queue_id: int = 0
) -> StoredProperties | None:
    """What is stored of the second one of its kind."""
    halves.read(topic, queue_id, text.encode())
    return halves.read(topic, queue_id, text.encode())


def long_way(text: str, topic: str, queue_id: int) -> bytes:
    properties = {**parse_properties(text), **ADDED}
    properties["__transactionId__"] = properties["UNIQ_KEY"]
    properties["REAL_TOPIC"], properties["REAL_QID"] = topic, str(queue_id)
    return stored_block(properties)


@pytest.mark.parametrize(
    "properties",
    [
        HALF,
        {**HALF, "WAIT": "true", "KEYS": "order-1 order-2", "TAGS": "paid"},
        {"KEYS": "1", "UNIQ_KEY": "0A01", "WAIT": "false", "PGROUP": "shop", "TRAN_MSG": "true", "a.*b": "c"},
        {**HALF, "CLUSTER": "theirs", "TRACE_ON": "false", "100%b": "%s %b 100%"},
        {**HALF, **{f"name-{number}": str(number) for number in range(40)}},
    ],
)
@pytest.mark.parametrize("queue_id", [0, 3, 7])
def test_the_short_way_gives_what_the_long_way_gives(properties: dict[str, str], queue_id: int) -> None:
    """B6: byte for byte, as Apache's broker stores it."""
    topic = "Orders%d"
    text = format_properties(properties)
    keys, tags = properties.get("KEYS"), properties.get("TAGS")
    assert read(half_sends_of(), text, topic, queue_id) == (
        long_way(text, topic, queue_id),
        tags_code(tags) if tags else 0,
        b"0A01",
        keys.encode() if keys else None,
        properties.get("WAIT") != "false",
    )


def test_names_are_worked_out_when_they_are_met_again() -> None:
    halves, text = half_sends_of(), format_properties(HALF).encode()
    assert halves.read("Orders", 0, text) is None
    assert halves.read("Orders", 0, text) is not None
    assert halves.read("Orders", 1, text) is not None
    assert halves.read("Bills", 0, text) is not None


def test_half_messages_of_several_kinds_keep_apart() -> None:
    """B6: with other values, other names, and for other queues."""
    halves = half_sends_of()
    kinds = [{**HALF, "KEYS": "1"}, {**HALF, "UNIQ_KEY": "0A02", "KEYS": "2 3"}, {**HALF, "TAGS": "a"}]
    for _ in range(2):
        for properties in kinds:
            halves.read("Orders", 0, format_properties(properties).encode())
    for properties in kinds * 2:
        for topic, queue_id in (("Orders", 0), ("Orders", 1), ("Bills", 1)):
            text = format_properties(properties)
            stored = halves.read(topic, queue_id, text.encode())
            assert stored is not None
            assert stored[0] == long_way(text, topic, queue_id)


def test_tables_that_are_full_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_sends, "_MAX_LAYOUTS", 3)
    halves = half_sends_of()
    for number in range(20):
        text = format_properties({**HALF, f"name-{number}": "x"})
        stored = read(halves, text, queue_id=number)
        assert stored is not None
        assert stored[0] == long_way(text, "Orders", number)
        assert max(len(halves._last), len(halves._layouts), len(halves._met)) <= 3


@pytest.mark.parametrize(
    "text",
    [
        format_properties({"UNIQ_KEY": "0A01", "PGROUP": "shop"}),
        format_properties({**HALF, "TRAN_MSG": "false"}),
        format_properties({**HALF, "TRAN_MSG": "True"}),
        format_properties({"TRAN_MSG": "true", "PGROUP": "shop"}),
        format_properties({**HALF, "DELAY": "3"}),
        format_properties({**HALF, "TIMER_DELAY_MS": "3"}),
        format_properties({**HALF, "REAL_TOPIC": "x"}),
        format_properties({**HALF, "__transactionId__": "x"}),
        format_properties(HALF)[:-1],
        format_properties(HALF) * 2,
        format_properties(HALF) + "\x01x\x02",
        format_properties(HALF) + "name\x02",
        format_properties({**HALF, **{f"name-{number}": "x" for number in range(100)}}),
    ],
)
def test_what_is_special_goes_the_long_way(text: str) -> None:
    assert read(half_sends_of(), text) is None


def test_where_transactions_are_rejected_the_long_way_says_so() -> None:
    assert read(half_sends_of(rejects=True), format_properties(HALF)) is None
