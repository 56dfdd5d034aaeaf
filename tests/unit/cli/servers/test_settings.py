"""Settings on the command line: layers, variables, flags (N2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cometmq
from cometmq.cli.servers.settings import (
    assignment_layer,
    environment_layer,
    file_layer,
    split_layer,
    unknown_variables,
    variable_name,
)
from cometmq.model.errors import SettingsError
from cometmq.model.settings import Layer, resolve
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.testing.embedded import STRUCTS


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


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        (
            "COMETMQ_LISTEN_PROT",
            ["unknown variable COMETMQ_LISTEN_PROT is ignored; did you mean COMETMQ_LISTEN_PORT?"],
        ),
        ("COMETMQ_NAMESERV", ["unknown variable COMETMQ_NAMESERV is ignored; did you mean COMETMQ_NAMESRV?"]),
        ("COMETMQ_QQQ", ["unknown variable COMETMQ_QQQ is ignored"]),
        ("COMETMQ_LISTEN_PORT", []),
        ("COMETMQ_TLS_TRUST", []),
        ("COMETMQ_BROKER_SERVICE_HOST", []),
        ("COMETMQ_PORT_9876_TCP_ADDR", []),
        ("PATH", []),
    ],
)
def test_a_mistyped_variable_is_named_with_the_nearest(name: str, warning: list[str]) -> None:
    """N2: but not those of clients, nor those that Kubernetes sets for a service."""
    assert unknown_variables({name: "1"}, NamesrvConfig.__struct_encode_fields__) == warning


def test_every_variable_that_the_code_reads_is_known() -> None:
    """N2: or a start would warn about it."""
    source = "".join(path.read_text() for path in Path(cometmq.__file__).parent.rglob("*.py"))
    keys = [key for kind in STRUCTS for key in kind.__struct_encode_fields__]
    found = set(re.findall(r'"(COMETMQ_[A-Z_]*[A-Z])"', source))
    assert "COMETMQ_NAMESRV" in found
    assert unknown_variables(dict.fromkeys(found, "1"), keys) == []


def test_a_mistyped_key_of_a_flag_is_refused() -> None:
    """N2: a file may serve several systems, a flag is for this one."""
    with pytest.raises(
        SettingsError, match=r"there is no setting lisenPort \(flag\); did you mean listenPort\?"
    ):
        resolve(NamesrvConfig, [Layer("flag", {"lisenPort": "1"}, is_strict=True)])


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
