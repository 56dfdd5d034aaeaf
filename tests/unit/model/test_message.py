"""Messages that applications make, and messages that brokers have stored."""

import pickle
from collections.abc import Mapping

import pytest

from cometmq.model.errors import MessageError
from cometmq.model.message import Host, Message, StoredMessage
from cometmq.model.queue import MessageQueue
from cometmq.model.sysflag import TransactionType


def stored(properties: Mapping[str, str], sys_flag: int = 0) -> StoredMessage:
    return StoredMessage(
        topic="orders",
        body=b"{}",
        properties=properties,
        broker_name="broker-a",
        queue_id=2,
        queue_offset=7,
        commit_log_offset=4096,
        store_size=128,
        body_crc=1,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host=Host("10.0.0.1", 50000),
        store_timestamp_ms=2,
        store_host=Host("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        offset_msg_id="7F00000100002A9F0000000000001000",
    )


def test_the_fields_of_a_message_become_its_properties() -> None:
    """P4"""
    message = Message(
        "orders",
        b"{}",
        tags="paid",
        keys=["42", "43"],
        properties={"colour": "red"},
        sharding_key="customer-7",
        delay_level=3,
        wait_store_ok=False,
    )

    assert message.all_properties() == {
        "TAGS": "paid",
        "KEYS": "42 43",
        "colour": "red",
        "__SHARDINGKEY": "customer-7",
        "DELAY": "3",
        "WAIT": "false",
    }


def test_a_plain_message_carries_only_wait_as_java_does() -> None:
    assert Message("orders", b"{}").all_properties() == {"WAIT": "true"}


def test_delays_and_delivery_times_become_timer_properties() -> None:
    """B6"""
    assert Message("t", b"", delay_ms=1500).all_properties()["TIMER_DELAY_MS"] == "1500"
    assert Message("t", b"", deliver_at_ms=1_700_000_000_000).all_properties()["TIMER_DELIVER_MS"] == (
        "1700000000000"
    )


@pytest.mark.parametrize(
    "delays",
    [
        {"delay_level": 1, "delay_ms": 5},
        {"delay_level": 1, "deliver_at_ms": 5},
        {"delay_ms": 5, "deliver_at_ms": 5},
    ],
)
def test_two_kinds_of_delay_at_once_are_refused(delays: dict[str, int]) -> None:
    with pytest.raises(MessageError, match="only one of"):
        Message("t", b"", **delays)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["delay_level", "delay_ms", "deliver_at_ms"])
def test_a_negative_delay_is_refused(field: str) -> None:
    with pytest.raises(MessageError, match=f"{field} is -1; "):
        Message("t", b"", **{field: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("deliver_at_ms", 1_763_330_000, "looks like seconds since 1970; in milliseconds: 1763330000000"),
        ("deliver_at_ms", 1_763_330_000_000.5, "a whole number of milliseconds: int"),
        ("deliver_at_ms", 5_000, "which is in January 1970; use delay_ms"),
        ("delay_ms", 1.5, "a whole number of milliseconds: 1500 if these are seconds"),
        ("delay_ms", 1_763_330_000_000, "looks like a point in time"),
        ("delay_level", 60, "levels are whole numbers from 0, which is no delay, to 18"),
        ("delay_level", 1.5, "use delay_ms for a time in milliseconds"),
        ("delay_level", True, "levels are whole numbers"),
    ],
)
def test_seconds_and_other_mistakes_in_delays_are_noticed(field: str, value: object, words: str) -> None:
    with pytest.raises(MessageError) as raised:
        Message("t", b"", **{field: value})  # type: ignore[arg-type]
    assert words in str(raised.value)


def test_reserved_and_blank_properties_are_refused_when_the_message_is_made() -> None:
    with pytest.raises(MessageError, match="'TAGS' is written by the system"):
        Message("t", b"", properties={"TAGS": "x"})
    with pytest.raises(MessageError, match="blank"):
        Message("t", b"", properties={"colour": " "})


@pytest.mark.parametrize("topic", ["", "  "])
def test_a_blank_topic_is_refused(topic: str) -> None:
    with pytest.raises(MessageError, match="topic"):
        Message(topic, b"")


def test_a_bare_string_as_keys_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(MessageError, match=r"write keys=\['42'\]"):
        Message("t", b"", keys="42")


def test_a_key_with_a_blank_is_refused_because_it_would_become_two() -> None:
    with pytest.raises(MessageError, match="'a b' contains a blank"):
        Message("t", b"", keys=["a b"])


def test_a_body_of_text_is_refused_and_other_bytes_are_copied() -> None:
    with pytest.raises(MessageError, match="encode it first"):
        Message("t", "text")  # type: ignore[arg-type]
    source = bytearray(b"first")
    message = Message("t", source)  # type: ignore[arg-type]
    source[:] = b"other"
    assert message.body == b"first"


def test_a_flag_beyond_32_bits_is_refused() -> None:
    assert Message("t", b"", flag=-(2**31)).flag == -(2**31)
    with pytest.raises(MessageError, match="32 bits"):
        Message("t", b"", flag=2**31)


def test_what_the_caller_changes_later_does_not_change_the_message() -> None:
    keys, properties = ["1"], {"colour": "red"}
    message = Message("t", b"", keys=keys, properties=properties)

    keys.append("not valid because of the blanks")
    properties["TAGS"] = "not allowed"

    assert message.keys == ("1",)
    assert message.properties == {"colour": "red"}


def test_a_message_survives_pickling() -> None:
    message = Message("t", b"body", tags="a", keys=["k"], properties={"p": "v"})

    assert pickle.loads(pickle.dumps(message)) == message


def test_a_stored_message_shows_the_producers_id_else_the_offset_id() -> None:
    assert stored({"UNIQ_KEY": "AB"}).msg_id == "AB"
    assert stored({}).msg_id == "7F00000100002A9F0000000000001000"


def test_a_stored_message_reads_its_fields_from_its_properties() -> None:
    message = stored(
        {"KEYS": "a  b", "TAGS": "paid", "__SHARDINGKEY": "7", "colour": "red", "CLUSTER": "c"}, sys_flag=0x8
    )

    assert message.keys == ("a", "b")
    assert message.tags == "paid"
    assert message.sharding_key == "7"
    assert message.transaction_type is TransactionType.COMMIT
    assert message.queue == MessageQueue("orders", "broker-a", 2)
    assert message.user_properties == {"colour": "red", "__SHARDINGKEY": "7"}


def test_a_stored_message_without_keys_and_tags_says_so() -> None:
    assert stored({}).keys == ()
    assert stored({}).tags is None


def test_hosts_read_as_addresses_with_port() -> None:
    assert str(Host("10.0.0.1", 1)) == "10.0.0.1:1"
    assert str(Host("::1", 2)) == "[::1]:2"
