"""Settings: declared structs filled from layers of text, each value with the place it came from.

Rules kept here: a later layer wins; an unknown key is a warning that names the nearest known one; a value of
the wrong type is an error that names the key and the layer. Keys are RocketMQ's property names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from cometmq.model.errors import SettingsError

S = TypeVar("S", bound=msgspec.Struct)


class Layer(msgspec.Struct, frozen=True):
    """Values from one place."""

    name: str
    values: Mapping[str, str]


class Resolved(msgspec.Struct, Generic[S]):
    """Settings in force."""

    settings: S
    origins: dict[str, str]
    """The layer each value came from; a key that is not here has its default."""
    warnings: list[str]


def resolve(cls: type[S], layers: Iterable[Layer]) -> Resolved[S]:
    """Fill the struct from the layers, later ones first."""
    known = set(cls.__struct_encode_fields__)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    warnings: list[str] = []
    for layer in layers:
        for key, text in layer.values.items():
            if key not in known:
                warnings.append(_unknown(key, layer.name, known))
                continue
            values[key] = convert(cls, key, text, layer.name)
            origins[key] = layer.name
    return Resolved(msgspec.convert(values, cls), origins, warnings)


def convert(cls: type[msgspec.Struct], key: str, text: str, origin: str) -> Any:
    """One value in the type of its field."""
    for info in msgspec.structs.fields(cls):
        if info.encode_name == key:
            try:
                return _read(info.type, text.strip())
            except (msgspec.ValidationError, ValueError) as error:
                kind = getattr(info.type, "__name__", str(info.type))
                raise SettingsError(
                    f"{key} = {text!r} ({origin}) is not a value of type {kind}: {error}"
                ) from None
    raise KeyError(key)


def _read(kind: Any, text: str) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        return text.lower() == "true"
    return msgspec.convert(text, kind, strict=False)


def as_texts(settings: msgspec.Struct) -> dict[str, str]:
    """Every setting as text, by its property name."""
    texts: dict[str, str] = {}
    names = zip(settings.__struct_fields__, settings.__struct_encode_fields__, strict=True)
    for name, key in names:
        value = getattr(settings, name)
        texts[key] = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
    return texts


def _unknown(key: str, origin: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown key {key} ({origin}) is ignored{hint}"
