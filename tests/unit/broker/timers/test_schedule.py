"""Which slot a delivery time leads to, and what a recall handle says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.broker.timers.schedule import RecallHandle, cancel_key, read_handle, recall_handle, slot_before

APACHE_HANDLE = "djEgT3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDEgQQ=="
"""What Apache's broker makes of `v1 Orders broker-a 1700000000001 A`."""


@given(st.integers(1, 2**42), st.sampled_from([100, 200, 500, 1000]))
def test_a_slot_ends_at_its_delivery_time_or_less_than_a_slot_after_it(deliver_ms: int, slot_ms: int) -> None:
    """B6: a slot is delivered when it is over, so that no message comes early."""
    slot = slot_before(deliver_ms, slot_ms)
    assert slot % slot_ms == 0
    assert deliver_ms <= slot + slot_ms < deliver_ms + slot_ms


def test_a_handle_is_the_one_of_apache_and_says_what_it_was_made_from() -> None:
    """B6."""
    properties = {"TIMER_OUT_MS": "1700000000000", "REAL_TOPIC": "Orders", "UNIQ_KEY": "A"}
    handle = recall_handle(properties, "broker-a")
    assert handle == APACHE_HANDLE
    assert read_handle(handle) == RecallHandle("Orders", "broker-a", 1_700_000_000_001, "A")
    assert slot_before(1_700_000_000_001, 1000) == 1_700_000_000_000
    assert cancel_key("Orders", "A") == "Orders+A"


@pytest.mark.parametrize(
    "changes",
    [{"TIMER_OUT_MS": "soon"}, {"REAL_TOPIC": "%RETRY%billing"}],
)
def test_what_cannot_be_taken_back_has_no_handle(changes: dict[str, str]) -> None:
    properties = {"TIMER_OUT_MS": "1700000000000", "REAL_TOPIC": "Orders", "UNIQ_KEY": "A", **changes}
    assert recall_handle(properties, "broker-a") is None
    assert recall_handle({"TIMER_OUT_MS": "1700000000000"}, "broker-a") is None


@given(st.text(max_size=40))
def test_any_other_text_is_no_handle(text: str) -> None:
    assert read_handle(text) is None


def test_a_handle_without_padding_or_with_a_time_that_is_none_is_read() -> None:
    assert read_handle(APACHE_HANDLE.rstrip("=")) == read_handle(APACHE_HANDLE)
    handle = read_handle("djEgYSBiIHNvb24gZA==")  # v1 a b soon d
    assert handle is not None
    assert handle.deliver_ms == -1
