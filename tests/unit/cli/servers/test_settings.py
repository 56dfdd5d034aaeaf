"""Settings on the command line: layers, variables, flags (N2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.cli.servers.settings import (
    assignment_layer,
    environment_layer,
    file_layer,
    split_layer,
    variable_name,
)
from cometmq.model.errors import SettingsError
from cometmq.model.settings import Layer
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("listenPort", "COMETMQ_LISTEN_PORT"),
        ("kvConfigPath", "COMETMQ_KV_CONFIG_PATH"),
        ("tls.server.mode", "COMETMQ_TLS_SERVER_MODE"),
        ("tls.server.need.client.auth", "COMETMQ_TLS_SERVER_NEED_CLIENT_AUTH"),
        ("productEnvNamesrvAddr", "COMETMQ_PRODUCT_ENV_NAMESRV_ADDR"),
    ],
)
def test_every_property_has_a_variable(key: str, variable: str) -> None:
    """N2: in the spelling of variables."""
    assert variable_name(key) == variable
    layer = environment_layer({variable: "x", "OTHER": "y"}, NamesrvConfig, NamesrvSettings)
    assert (layer.name, layer.values) == ("environment", {key: "x"})


def test_no_two_properties_share_a_variable() -> None:
    """N2: a variable sets one thing."""
    keys = [*NamesrvConfig.__struct_encode_fields__, *NamesrvSettings.__struct_encode_fields__]
    assert len({variable_name(key) for key in keys}) == len(keys)


def test_variables_of_other_commands_are_not_ours() -> None:
    """N2: they are no mistake."""
    assert environment_layer({"COMETMQ_BROKER_NAME": "b"}, NamesrvConfig).values == {}


def test_assignments_are_key_and_value() -> None:
    """N2: the value may contain anything, and the last of a key counts."""
    assert assignment_layer(["a=1", "b = x=y", "a=2", "c="]) == {"a": "2", "b": " x=y", "c": ""}


@pytest.mark.parametrize("assignment", ["listenPort", "=1", " =1", ""])
def test_an_assignment_without_key_or_equals_sign_is_an_error(assignment: str) -> None:
    """N2: with an example."""
    with pytest.raises(SettingsError, match="for example --set listenPort=9877"):
        assignment_layer([assignment])


def test_a_properties_file_is_a_layer_of_its_name(tmp_path: Path) -> None:
    """N2: so that every value can say where it came from."""
    path = tmp_path / "ns.conf"
    path.write_text("# port\nlistenPort = 1\n")
    assert file_layer(path) == Layer(str(path), {"listenPort": "1"})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"a=\xff", "can't decode"),
        (b"a=\\u00zz", "four hexadecimal digits"),
    ],
    ids=["missing", "not UTF-8", "broken escape"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """N2: with the reason."""
    path = tmp_path / "ns.conf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=f"ns.conf cannot be read: .*{reason}"):
        file_layer(path)


def test_a_layer_is_split_by_who_knows_its_keys() -> None:
    """N2: a key that nobody knows goes to the first, which warns about it."""
    layer = Layer("file", {"listenPort": "1", "tls.server.mode": "disabled", "what": "?"})
    first, second = split_layer(layer, (NamesrvConfig, NamesrvSettings))
    assert first == Layer("file", {"listenPort": "1", "what": "?"})
    assert second == Layer("file", {"tls.server.mode": "disabled"})
