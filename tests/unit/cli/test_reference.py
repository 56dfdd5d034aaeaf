"""The configuration reference: every setting has a sentence and a state, and the state is true (N2, B1)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import cometmq
from cometmq.broker.config import BrokerConfig
from cometmq.cli.reference import reference, settings_of
from cometmq.model.newer_settings import REASONS
from cometmq.model.settings import Fixed, NextStart, NoEffect, State, state_of, states
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.remoting.server_settings import ServerSettings
from cometmq.store.config import StoreConfig

ROOT = Path(cometmq.__file__).parent
KINDS = (BrokerConfig, StoreConfig, NamesrvConfig, NamesrvSettings, ServerSettings)
HOLDERS = {"config", "store_config", "settings", "broker", "store"}
"""Names of variables and attributes that hold settings."""
DECLARING = {"broker/config.py", "store/config.py", "namesrv/config.py", "remoting/server_settings.py"}
ONLY_SHOWN = {
    "pullThreadPoolQueueCapacity",
    "litePullThreadPoolQueueCapacity",
    "ackThreadPoolQueueCapacity",
    "queryThreadPoolQueueCapacity",
    "endTransactionPoolQueueCapacity",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_has_a_sentence(kind: type[msgspec.Struct]) -> None:
    wrong = [
        each.key
        for each in settings_of(kind)
        if not each.meaning.endswith(".") or len(each.meaning) < 15 or not (each.meaning[:1].isupper())
    ]
    assert [key for key in wrong if key != "brokerId"] == []


def test_every_key_is_on_the_page_with_a_state() -> None:
    rows = [line.split(" | ") for line in reference().splitlines() if line.startswith("| `")]
    keys = {row[0][3:-1] for row in rows}
    assert keys == {key for kind in KINDS for key in kind.__struct_encode_fields__} | REASONS.keys()
    for row in rows:
        state = row[1 if len(row) == 3 else 3]
        assert state in [*State] or state.startswith("only "), row


def test_the_type_of_a_setting_says_its_state() -> None:
    class Knobs(msgspec.Struct):
        a: int
        b: NextStart[int]
        c: Fixed[int]
        d: NoEffect[Fixed[int]]
        e: Fixed[NoEffect[int]]

    assert list(states(Knobs).values()) == ["live", "next start", "start only", "no effect", "no effect"]


def reads() -> Iterator[str]:
    """The names of attributes that are read from something that holds settings."""
    for path in ROOT.rglob("*.py"):
        is_declaring = str(path.relative_to(ROOT)) in DECLARING
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(
                    value=ast.Name(id=holder)
                    | ast.Attribute(attr=holder)
                    | ast.Call(func=ast.Attribute(attr=holder)),
                    attr=name,
                ):
                    if holder.lstrip("_") in HOLDERS or (is_declaring and holder == "self"):
                        yield name


def test_a_setting_is_read_unless_it_says_that_it_has_no_effect() -> None:
    """B1: what is taken and shown does something, is refused, or is marked."""
    found = set(reads())
    for kind in KINDS:
        types = {info.name: info.type for info in msgspec.structs.fields(kind)}
        for name, setting in zip(kind.__struct_fields__, settings_of(kind), strict=True):
            if setting.key in ONLY_SHOWN:
                assert (name in found, state_of(types[name])) == (True, State.NO_EFFECT)
            elif setting.state == State.NO_EFFECT:
                assert name not in found, f"{setting.key} is read, so it is not without effect"
            elif not setting.state.startswith("only ") and setting.key != "storeType":  # it has one value
                assert name in found, f"{setting.key} is read nowhere: mark it NoEffect, or use it"
