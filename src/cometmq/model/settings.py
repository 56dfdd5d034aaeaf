"""Settings: declared structs filled from layers of text, each value with the place it came from.

Rules kept here: a later layer wins; an unknown key is a warning that names the nearest known one; a value of
the wrong type is an error that names the key, the layer and what would be right. Keys are RocketMQ's property
names; an empty value of a setting that may be absent leaves it absent. A setting that would promise what this
software does not do yet is refused (`Only`), never accepted in silence; its default always is fine.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, get_args

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


class Only(NamedTuple):
    """A setting of which only some values are supported."""

    key: str
    allowed: str
    """The texts that are fine, ` or ` between them."""
    instead: str
    """What would go wrong with another one, and what to do instead."""


def refuse_unsupported(settings: msgspec.Struct, rules: Iterable[Only]) -> None:
    """Raise `SettingsError` if one of the settings has a value that is not supported."""
    texts = as_texts(settings)
    for rule in rules:
        text = texts[rule.key].strip()
        if text not in rule.allowed.split(" or "):
            raise SettingsError(f"{rule.key} = {text} is not supported: {rule.instead}")


def resolve(cls: type[S], layers: Iterable[Layer]) -> Resolved[S]:
    """Fill the struct from the layers; a later one wins."""
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
            except ValueError:  # msgspec's ValidationError is one
                raise SettingsError(f"{key} = {text!r} ({origin}) is not {_wanted(info.type)}") from None
    raise KeyError(key)


def _read(kind: Any, text: str) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if not text and type(None) in get_args(kind):
        return None
    return msgspec.convert(text, kind, strict=False)


def _wanted(kind: Any) -> str:
    from msgspec import inspect  # here, because only a mistake needs it

    info = inspect.type_info(kind)
    if isinstance(info, inspect.BoolType):
        return "true or false"
    if isinstance(info, inspect.LiteralType):
        return f"one of {', '.join(map(str, info.values))}"
    if isinstance(info, inspect.IntType) and info.ge is not None and info.le is not None:
        return f"a whole number from {info.ge} to {info.le}"
    return "a whole number" if isinstance(info, inspect.IntType) else "a text"


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
