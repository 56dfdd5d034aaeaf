"""What requests may change of the settings, and what not: the next start is not in danger (B13, N9)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.start_checks import refuse_settings
from cometmq.model.errors import SettingsError
from cometmq.model.settings import Layer, as_texts, changed_by_request, is_fixed, plain_type, resolve
from cometmq.namesrv.config import NamesrvConfig
from cometmq.store.config import StoreConfig
from cometmq.wire.codes import RequestCode
from cometmq.wire.java_properties import format_properties, parse_properties
from tests.integration.broker.broker_kit import running_broker
from tests.integration.namesrv.namesrv_kit import running_namesrv

NO_PERMISSION, INVALID = 16, 29
BLACK_LIST = "Can not update config in black list."
FIXED = (
    "cannot be changed by request, as names, addresses, ports, folders and sizes of files are those of the "
    "start; nothing was changed. Set it in the configuration file and start again"
)
BROKER = (BrokerConfig, StoreConfig)


def keys_of(*kinds: type[msgspec.Struct], fixed: bool) -> list[str]:
    return [
        info.encode_name
        for kind in kinds
        for info in msgspec.structs.fields(kind)
        if is_fixed(info.type) is fixed
    ]


def test_names_addresses_ports_folders_and_file_sizes_are_fixed() -> None:
    """By their names, so that one that is added later is not forgotten."""
    telling = ("path", "port", "rootdir", "addr", "ip1", "ip2", "host", "name", "filesize")
    not_meant = {
        "fetchNamesrvAddrInterval",
        "loadBalancePollNameServerInterval",
        "msgTraceTopicName",
        "namesrvAddr",  # name servers move while brokers run, as with Apache
        "productEnvName",
        "registerNameServerPeriod",
        "updateNameServerAddrPeriod",
    }
    for kind in (*BROKER, NamesrvConfig):
        for key in keys_of(kind, fixed=False):
            is_telling = any(word in key.lower().replace("exporter", "") for word in telling)
            assert not is_telling or key in not_meant or _is_switch(kind, key), key
    assert {
        "brokerRole",
        "brokerId",
        "brokerClusterName",
        "haMasterAddress",
        "maxIndexNum",
    } <= {*keys_of(*BROKER, fixed=True)}


def _is_switch(kind: type[msgspec.Struct], key: str) -> bool:
    (info,) = (each for each in msgspec.structs.fields(kind) if each.encode_name == key)
    return plain_type(info.type) is bool


async def test_a_broker_changes_no_fixed_setting_in_no_spelling(tmp_path: Path) -> None:
    """B13: nor what is asked for together with it."""
    path = tmp_path / "broker.conf"
    spellings = [
        "\\u006cistenPort=1",
        "listenPort 1",
        "  listenPort : 1",
        "li\\\nstenPort=1",
        "listenPort=10911\nlistenPort=1",
    ]
    async with running_broker(settings={"brokerConfigPath": str(path)}) as kit:
        before = kit.broker.context.settings.broker, kit.broker.context.settings.store
        for body in [*(f"{key}=1" for key in keys_of(*BROKER, fixed=True)), *spellings]:
            asked = f"slaveReadEnable=true\n{body}\n".encode()
            code, remark, _, _ = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, None, asked)
            assert code == NO_PERMISSION, body
            assert remark in (BLACK_LIST, f"{re.split('[=]', body)[0]} {FIXED}", f"listenPort {FIXED}"), body
        assert (kit.broker.context.settings.broker, kit.broker.context.settings.store) == before
    assert not path.exists()


async def test_a_value_is_one_line_of_what_can_be_seen(tmp_path: Path) -> None:
    """B13: also of a key that is not known."""
    path = tmp_path / "broker.conf"
    values = [r"a\nlistenPort=1", r"a\r\nb", r"a\u0000b", r"a\u001b[2J", r"a\u2028b", r"a\u202eb", "x" * 5000]
    async with running_broker(settings={"brokerConfigPath": str(path)}) as kit:
        before = kit.broker.context.settings.broker
        for key in ("regionId", "metricsLabel", "deleteWhen", "noSuchKey"):
            for value in values:
                body = f"slaveReadEnable=true\n{key}={value}\n".encode()
                code, remark, _, _ = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, None, body)
                assert code == INVALID
                assert (remark or "").startswith(f"{key} (request) is not one line")
        assert kit.broker.context.settings.broker is before
    assert not path.exists()


def extremes(kind: type[msgspec.Struct], largest: bool) -> Iterator[tuple[str, str]]:
    """For every setting that a request may change, the least or the greatest value of its type."""
    for info in msgspec.structs.fields(kind):
        if not is_fixed(info.type):
            yield info.encode_name, _extreme(info.type, info.default, largest)


def _extreme(annotation: Any, default: object, largest: bool) -> str:
    base, *notes = get_args(annotation) if get_origin(annotation) not in (None, type) else (annotation,)
    if plain_type(annotation) is bool:
        return str(not default).lower()
    if "Literal" in str(get_origin(annotation)):
        return str(get_args(annotation)[-1 if largest else 0])
    if base in (int, float):
        ranges = [(note.ge, note.le) for note in notes if getattr(note, "ge", None) is not None]
        return str(ranges[0][largest] if ranges else 2**31 - 1 if largest else -(2**31))
    return "x\\\\y = z # ü" if largest else ""


@pytest.mark.parametrize("largest", [False, True])
async def test_a_broker_starts_with_everything_that_a_request_could_store(
    tmp_path: Path, largest: bool
) -> None:
    """B13: each key is tried by itself; what is refused changes nothing."""
    path = tmp_path / "broker.conf"
    async with running_broker(tmp_path, {"brokerConfigPath": str(path)}) as kit:
        context = kit.broker.context
        accepted = {
            key: text
            for settings in (context.settings.broker, context.settings.store)
            for key, text in extremes(type(settings), largest)
            if is_possible(key, text, context.settings.broker, context.settings.store)
        }
        del accepted["brokerHeartbeatInterval"]  # it has to be below the next one, which stays above it
        accepted["brokerNotActiveTimeoutMillis"] = "10000"
        await kit.ok(RequestCode.UPDATE_BROKER_CONFIG, None, format_properties(accepted).encode())
    stored = parse_properties(path.read_text())
    assert stored == accepted
    assert len(stored) > 200
    async with running_broker(tmp_path, stored) as kit:
        settings = kit.broker.context.settings
        shown = {**as_texts(settings.broker), **as_texts(settings.store)}
        assert [key for key, text in stored.items() if shown[key] not in (text, f"{text}.0")] == []


def is_possible(key: str, text: str, *settings: msgspec.Struct) -> bool:
    try:
        changed = [changed_by_request(each, {key: text}) for each in settings]
        if isinstance(changed[0], BrokerConfig) and isinstance(changed[1], StoreConfig):
            refuse_settings(changed[0], changed[1])
    except SettingsError:
        return False
    return True


@pytest.mark.parametrize("key", ["tls.server.mode", "maxConnections"])
async def test_settings_of_the_port_itself_are_refused_not_ignored(key: str, tmp_path: Path) -> None:
    """B13, N9: TLS and limits are those of the start."""
    async with running_broker() as kit, running_namesrv(tmp_path) as namesrv:
        answer = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, None, f"{key}=1\n".encode())
        assert (answer.code, answer.remark) == (NO_PERMISSION, f"{key} {FIXED}")
        assert (await namesrv.configure(f"{key}=1\n")).code == NO_PERMISSION


async def test_a_file_with_which_no_broker_starts_is_not_written(tmp_path: Path) -> None:
    """B13: somebody else has changed it meanwhile."""
    path = tmp_path / "broker.conf"
    async with running_broker(settings={"brokerConfigPath": str(path)}) as kit:
        path.write_text("listenPort=perhaps\n")
        answer = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=48\n")
        assert answer.code == 1
        assert "listenPort = 'perhaps'" in (answer.remark or "")
        assert kit.broker.context.settings.store.file_reserved_time == 72
    assert path.read_text() == "listenPort=perhaps\n"


async def test_a_name_server_changes_no_fixed_setting(tmp_path: Path) -> None:
    """N9"""
    async with running_namesrv(tmp_path) as namesrv:
        before = namesrv.server.state.config
        for key in keys_of(NamesrvConfig, fixed=True):
            code, remark, _, _ = await namesrv.configure(f"orderMessageEnable=true\n{key}=1\n")
            assert code == NO_PERMISSION
            assert remark in (BLACK_LIST, f"{key} {FIXED}")
        assert namesrv.server.state.config is before
    assert not (tmp_path / "namesrv.properties").exists()


@pytest.mark.parametrize("largest", [False, True])
async def test_a_name_server_starts_with_everything_that_a_request_could_store(
    tmp_path: Path, largest: bool
) -> None:
    """N9"""
    async with running_namesrv(tmp_path) as namesrv:
        settings = namesrv.server.state.config
        wanted = extremes(NamesrvConfig, largest)
        accepted = {key: text for key, text in wanted if is_possible(key, text, settings)}
        assert (await namesrv.configure(format_properties(accepted))).code == 0
    stored = parse_properties((tmp_path / "namesrv.properties").read_text())
    config = resolve(NamesrvConfig, [Layer("stored", stored)]).settings
    changes = {name: getattr(config, name) for name in config.__struct_fields__ if "path" not in name}
    async with running_namesrv(tmp_path, **changes) as namesrv:
        assert namesrv.server.state.config.order_message_enable is True
