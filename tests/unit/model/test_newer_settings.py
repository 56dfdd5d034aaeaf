"""The settings that RocketMQ 5.4 and 5.5 added."""

from __future__ import annotations

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.model.errors import SettingsError
from cometmq.model.newer_settings import REASONS, REFUSED
from cometmq.model.settings import Layer, resolve
from cometmq.store.config import StoreConfig


def test_a_key_of_a_newer_release_is_known_and_says_why_it_has_no_effect() -> None:
    values = {"enableLiteEventMode": "true", "timerRocksDBEnable": "false", "enableLiteEventMod": "x"}
    assert resolve(BrokerConfig, [Layer("broker.conf", values)]).warnings == [
        "enableLiteEventMode (broker.conf) of RocketMQ 5.5 has no effect: there are no lite topics",
        "timerRocksDBEnable (broker.conf) of RocketMQ 5.5 has no effect: nothing is kept in RocksDB",
        "unknown key enableLiteEventMod (broker.conf) is ignored",
    ]


@pytest.mark.parametrize("key", REFUSED)
def test_what_would_keep_messages_elsewhere_is_refused(key: str) -> None:
    with pytest.raises(SettingsError, match=f"{key} = true .* leave it out, or set it to false"):
        resolve(BrokerConfig, [Layer("broker.conf", {key: "true"})])


def test_no_key_is_declared_twice() -> None:
    declared = {*BrokerConfig.__struct_encode_fields__, *StoreConfig.__struct_encode_fields__}
    assert declared & REASONS.keys() == set()
    assert set(REFUSED) <= REASONS.keys()
