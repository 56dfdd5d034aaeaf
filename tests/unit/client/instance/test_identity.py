"""Who a client is."""

from __future__ import annotations

import os
from datetime import datetime
from ipaddress import ip_address

import pytest

from cometmq.client.instance.identity import MessageIds, client_id, local_ip, month_around
from cometmq.client.settings import ClientSettings
from cometmq.model.errors import SettingsError
from cometmq.testing.clock import VirtualClock
from tests.unique_ids import parse_unique_id


def test_the_id_has_the_address_the_name_and_the_unit() -> None:
    settings = ClientSettings(client_ip="10.1.2.3", instance_name="till-4", unit_name="east")
    assert client_id(settings) == "10.1.2.3@till-4@east"


def test_the_default_name_becomes_one_of_its_own_unless_it_has_to_stay() -> None:
    settings = ClientSettings(client_ip="10.1.2.3")
    assert client_id(settings) != client_id(settings)
    assert client_id(settings).startswith(f"10.1.2.3@{os.getpid()}#")
    assert client_id(settings, keep_instance_name=True) == "10.1.2.3@DEFAULT"


def test_the_local_address_is_an_address() -> None:
    assert not ip_address(local_ip()).is_unspecified


def test_a_wrong_address_is_refused() -> None:
    with pytest.raises(SettingsError, match="not an IP address"):
        MessageIds("here", VirtualClock())


def ms(year: int, month: int, day: int, hour: int = 0) -> int:
    return int(datetime(year, month, day, hour).timestamp() * 1000)


def test_a_month_begins_on_its_first_day_here() -> None:
    assert month_around(ms(2026, 7, 14, 12)) == (ms(2026, 7, 1), ms(2026, 8, 1))
    assert month_around(ms(2026, 12, 31)) == (ms(2026, 12, 1), ms(2027, 1, 1))


def test_message_ids_count_from_the_first_of_the_month_also_in_the_next_one() -> None:
    clock = VirtualClock(ms(2026, 7, 31, 23))
    ids = MessageIds("10.1.2.3", clock)
    july = parse_unique_id(ids.next_id(clock.now_ms()))
    august = parse_unique_id(ids.next_id(ms(2026, 8, 1) + 5))
    assert july.month_ms == ms(2026, 7, 31, 23) - ms(2026, 7, 1)
    assert august.month_ms == 5
    assert (july.ip, july.pid) == ("10.1.2.3", os.getpid() & 0xFFFF)
    assert august.counter == (july.counter + 1) & 0xFFFF


def test_two_clients_of_one_process_never_make_the_same_id() -> None:
    clock = VirtualClock()
    ids = [MessageIds("10.1.2.3", clock) for _ in range(50)]
    made = [each.next_id(clock.now_ms()) for each in ids for _ in range(10)]
    assert len(set(made)) == 500
