"""Settings from layers of text (N2)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from cometmq.model.errors import SettingsError
from cometmq.model.settings import Layer, as_texts, convert, resolve


class Knobs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    listen_port: Annotated[int, Meta(ge=0, le=65_535)] = 9876
    order_enable: bool = False
    home_path: str = ""
    pool_size: int = 8
    cert_path: str | None = None
    mode: Literal["off", "on"] = "on"


def test_without_layers_everything_has_its_default() -> None:
    """N2: and nothing has another origin."""
    resolved = resolve(Knobs, [])
    assert resolved.settings == Knobs()
    assert (resolved.origins, resolved.warnings) == ({}, [])


def test_a_later_layer_wins() -> None:
    """N2: file, then variables, then flags; each value knows where it came from."""
    resolved = resolve(
        Knobs,
        [
            Layer("file", {"listenPort": "1", "poolSize": "2", "orderEnable": "true"}),
            Layer("environment", {"listenPort": "3", "poolSize": "4"}),
            Layer("flag", {"listenPort": "5"}),
        ],
    )
    assert resolved.settings == Knobs(listen_port=5, pool_size=4, order_enable=True)
    assert resolved.origins == {"listenPort": "flag", "poolSize": "environment", "orderEnable": "file"}


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("listenport", "; did you mean listenPort?"),
        ("orderEnabled", "; did you mean orderEnable?"),
        ("xyz", ""),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(key: str, hint: str) -> None:
    """N2: it is ignored, not refused."""
    resolved = resolve(Knobs, [Layer("my.conf", {key: "1"})])
    assert resolved.settings == Knobs()
    assert resolved.warnings == [f"unknown key {key} (my.conf) is ignored{hint}"]


@pytest.mark.parametrize(
    ("key", "text", "wanted"),
    [
        ("listenPort", "many", "a whole number from 0 to 65535"),
        ("listenPort", "65536", "a whole number from 0 to 65535"),
        ("listenPort", "-1", "a whole number from 0 to 65535"),
        ("poolSize", "1.5", "a whole number"),
        ("poolSize", "", "a whole number"),
        ("orderEnable", "yes", "true or false"),
        ("mode", "maybe", "one of off, on"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_would_be_right(key: str, text: str, wanted: str) -> None:
    """N2: with the key, the value and the place."""
    with pytest.raises(SettingsError) as caught:
        resolve(Knobs, [Layer("my.conf", {key: text})])
    assert str(caught.value) == f"{key} = {text!r} (my.conf) is not {wanted}"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("listenPort", " 80 ", 80),
        ("orderEnable", "TRUE", True),
        ("orderEnable", "False", False),
        ("homePath", "12", "12"),
        ("certPath", "", None),
        ("certPath", "null", "null"),
        ("homePath", "", ""),
        ("mode", "off", "off"),
    ],
)
def test_values_are_read_in_the_type_of_their_field(key: str, text: str, value: object) -> None:
    """N2: text around a value does not count, and nothing is guessed."""
    assert convert(Knobs, key, text, "flag") == value


def test_settings_as_text_are_read_back_as_they_were() -> None:
    """N9: what is stored by a request is in force after the next start."""
    settings = Knobs(listen_port=1, order_enable=True, home_path="/x y", mode="off")
    texts = as_texts(settings)
    assert texts["orderEnable"] == "true"
    assert texts["certPath"] == ""
    assert resolve(Knobs, [Layer("file", texts)]).settings == settings


def test_asking_for_a_setting_that_does_not_exist_is_a_mistake_in_the_program() -> None:
    """N2: the caller checks the key first."""
    with pytest.raises(KeyError):
        convert(Knobs, "noSuchKey", "1", "flag")
