"""Hosts and message ids."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cometmq.model.errors import MessageError
from cometmq.model.message import Host
from cometmq.wire.record.ids import (
    IdError,
    OffsetId,
    UniqueIdGenerator,
    decode_offset_id,
    encode_offset_id,
    pack_host,
    unpack_host,
)
from tests.unique_ids import UniqueId, parse_unique_id

addresses = st.ip_addresses().map(str)
ports = st.integers(0, 65535)
DAY_MS = 24 * 3600 * 1000


@settings(deadline=None)
@given(addresses, ports)
def test_a_host_is_packed_and_unpacked(ip: str, port: int) -> None:
    assert unpack_host(pack_host(Host(ip, port))) == Host(ip, port)


def test_a_packed_host_is_address_and_port() -> None:
    assert pack_host(Host("127.0.0.1", 10911)) == bytes.fromhex("7f000001 00002a9f")
    assert pack_host(Host("::1", 1)) == bytes(15) + b"\x01" + bytes.fromhex("00000001")


@pytest.mark.parametrize("host", [Host("localhost", 1), Host("127.0.0.1", 65536), Host("127.0.0.1", -1)])
def test_a_name_or_an_impossible_port_cannot_be_packed(host: Host) -> None:
    with pytest.raises(MessageError):
        pack_host(host)


@pytest.mark.parametrize("packed", [b"", bytes(7), bytes(9), bytes(19), b"\x7f\0\0\1\0\1\0\0", b"\xff" * 8])
def test_bytes_that_are_no_host_are_refused(packed: bytes) -> None:
    with pytest.raises(IdError):
        unpack_host(packed)


@settings(deadline=None)
@given(addresses, ports, st.integers(0, 2**63 - 1))
def test_an_offset_id_says_broker_and_offset(ip: str, port: int, offset: int) -> None:
    """B10"""
    text = encode_offset_id(pack_host(Host(ip, port)), offset)

    assert decode_offset_id(text) == OffsetId(Host(ip, port), offset)
    assert decode_offset_id(text.lower()) == OffsetId(Host(ip, port), offset)
    assert text == text.upper()
    assert len(text) == (56 if ":" in ip else 32)


def test_the_offset_id_of_the_reference_record() -> None:
    host = pack_host(Host("127.0.0.1", 10911))
    assert encode_offset_id(host, 4096) == "7F00000100002A9F0000000000001000"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F",
        "7F00000100002A9F000000000000100",
        "7F00000100002A9F00000000000010000",
        "7F00000100002A9F000000000000100G",
        "7F 000001 0002A9F 00000000000100",
        "7F00000100002A9FF000000000001000",
        "7F000001FFFFFFFF0000000000001000",
        "\uff17F00000100002A9F0000000000001000",
        "0" * 55,
    ],
)
def test_a_text_that_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(IdError):
        decode_offset_id(text)


HEXADECIMAL = "0123456789abcdefABCDEF"


@settings(deadline=None)
@given(st.text(max_size=60) | st.text(HEXADECIMAL + " ", min_size=32, max_size=32))
def test_a_text_that_is_not_hexadecimal_is_no_id(text: str) -> None:
    assume(len(text) not in (32, 56) or set(text) - set(HEXADECIMAL))

    with pytest.raises(IdError, match="expected"):
        decode_offset_id(text)


def test_unique_ids_say_where_and_when_a_message_was_made() -> None:
    generator = UniqueIdGenerator(bytes([10, 0, 0, 1]), pid=0x12345, process_constant=-2, month_start_ms=1000)

    first, second = generator.next_id(now_ms=1500), generator.next_id(now_ms=1501)

    assert first == "0A0000012345FFFFFFFE000001F40000"
    assert parse_unique_id(first) == UniqueId("10.0.0.1", 0x2345, 0xFFFFFFFE, 500, 0)
    assert parse_unique_id(second) == UniqueId("10.0.0.1", 0x2345, 0xFFFFFFFE, 501, 1)


def test_the_counter_wraps_at_sixteen_bits() -> None:
    generator = UniqueIdGenerator(bytes(16), 1, 2, month_start_ms=0, counter=0xFFFF)

    assert parse_unique_id(generator.next_id(5)).counter == 0xFFFF
    assert parse_unique_id(generator.next_id(5)).counter == 0


def test_no_id_comes_twice_within_a_turn_of_the_counter() -> None:
    generator = UniqueIdGenerator(bytes(4), 1, 2, month_start_ms=0)

    assert len({generator.next_id(7) for _ in range(0x10000)}) == 0x10000


def test_a_new_month_counts_from_its_own_start_and_goes_on_with_the_counter() -> None:
    generator = UniqueIdGenerator(bytes(4), 1, 2, month_start_ms=0)
    generator.next_id(31 * DAY_MS - 1)

    generator.start_month(31 * DAY_MS)

    assert generator.month_start_ms == 31 * DAY_MS
    assert parse_unique_id(generator.next_id(31 * DAY_MS + 2))[-2:] == (2, 1)


def test_the_last_day_of_a_long_month_still_fits() -> None:
    generator = UniqueIdGenerator(bytes(4), 1, 2, month_start_ms=0)

    assert parse_unique_id(generator.next_id(31 * DAY_MS)).month_ms == 31 * DAY_MS


def test_a_clock_set_back_before_the_month_counts_as_its_start() -> None:
    generator = UniqueIdGenerator(bytes(4), 1, 2, month_start_ms=1000)

    assert parse_unique_id(generator.next_id(1)).month_ms == 0


def test_an_address_that_is_no_ip_is_refused() -> None:
    with pytest.raises(MessageError, match="not 5"):
        UniqueIdGenerator(bytes(5), 1, 2, month_start_ms=0)
