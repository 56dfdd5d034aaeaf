"""Settings: declared structs filled from layers of text, with the source of each value.

Rules kept here: a later layer wins; an unknown key is a warning that names the nearest known one, or an error
where the layer is for this server alone; a value of the wrong type is an error that names the key, the layer
and the right type. Keys are RocketMQ's property names; an empty value of an optional setting is no value. An
unsupported value is refused (`Only`), never silently accepted. A request changes all its settings or none,
and never `Fixed` or `BlackListed` ones.

The type of a setting says its `State`: what a change by request does. The text below it is its sentence in
the configuration reference.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from cometmq.model.errors import SettingsError
from cometmq.model.newer_settings import no_effect
from cometmq.model.peer_text import escaped

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

LONGEST_VALUE: Final = 4000
"""The longest value in a request, in characters."""
_STATE: Final = "state"
_MARK: Final = "no request changes it"
_BLACK_LIST: Final = "black list"
_FIXED: Final = "fixed"


class State(StrEnum):
    """What becomes of a setting that a request changes."""

    LIVE = "live"
    """It is in force at once."""
    NEXT_START = "next start"
    """It is kept, and in force from the next start on."""
    START_ONLY = "start only"
    """The request is refused."""
    NO_EFFECT = "no effect"
    """It is kept and shown, and nothing depends on it."""


NextStart = Annotated[T, msgspec.Meta(extra={_STATE: State.NEXT_START})]
"""A setting that is read at the start."""
NoEffect = Annotated[T, msgspec.Meta(extra={_STATE: State.NO_EFFECT})]
"""A setting of Apache's servers for something that is not here, or done otherwise."""
BlackListed = Annotated[T, msgspec.Meta(extra={_MARK: _BLACK_LIST})]
"""A setting that Apache's servers have on their black list."""
Fixed = Annotated[T, msgspec.Meta(extra={_MARK: _FIXED})]
"""A setting that is given at the start: with another value the files, or the clients, would not be found."""

Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
JavaInt = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class Layer(msgspec.Struct, frozen=True):
    """Values from one source."""

    name: str
    values: Mapping[str, str]
    is_strict: bool = False
    """Whether an unknown key is an error."""


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
    """The supported texts, separated by ` or `."""
    instead: str
    """Why other values are refused, and what to do instead."""


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
                newer = no_effect(key, text, layer.name)
                if newer is None and layer.is_strict:
                    raise SettingsError(f"there is no setting {key} ({layer.name}){nearest(key, known)}")
                warnings.append(newer or f"unknown key {key} ({layer.name}) is ignored{nearest(key, known)}")
                continue
            values[key] = convert(cls, key, text, layer.name)
            origins[key] = layer.name
    return Resolved(msgspec.convert(values, cls), origins, warnings)


def convert(cls: type[msgspec.Struct], key: str, text: str, origin: str) -> Any:
    """Returns a value in the type of its field."""
    annotation = _types(cls)[key]
    try:
        return _read(annotation, text.strip())
    except ValueError:  # msgspec's ValidationError is one
        raise SettingsError(f"{key} = {text!r} ({origin}) is not {_wanted(annotation)}") from None


@cache
def _types(cls: type[msgspec.Struct]) -> dict[str, Any]:
    return {info.encode_name: info.type for info in msgspec.structs.fields(cls)}


def plain_type(annotation: Any) -> Any:
    """Returns a type without annotations."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def is_fixed(annotation: Any) -> bool:
    """Whether no request may change a setting of this type."""
    return bool(_mark(annotation))


def state_of(annotation: Any) -> State:
    """What becomes of a setting of this type that a request changes."""
    declared = State(_note(annotation, _STATE) or State.LIVE)
    return State.START_ONLY if declared is not State.NO_EFFECT and _mark(annotation) else declared


def states(kind: type[msgspec.Struct]) -> dict[str, State]:
    """The state of every setting, by its property name."""
    return {key: state_of(annotation) for key, annotation in _types(kind).items()}


def _mark(annotation: Any) -> str:
    return _note(annotation, _MARK)


def _note(annotation: Any, key: str) -> str:
    notes = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return next((str(note.extra[key]) for note in notes if note.extra and key in note.extra), "")


def refuse_keys(kinds: Iterable[type[msgspec.Struct]], keys: Iterable[str], listed: str) -> str | None:
    """Returns why a request cannot change these settings, or None. `listed` has further fixed keys."""
    marks = {key: _mark(annotation) for kind in kinds for key, annotation in _types(kind).items()}
    black_list = {key.strip() for key in listed.split(";")}
    wanted = sorted(keys)
    if any(key in black_list or marks.get(key) == _BLACK_LIST for key in wanted):
        return "Can not update config in black list."
    fixed = [key for key in wanted if marks.get(key) == _FIXED]
    if not fixed:
        return None
    return (
        f"{', '.join(fixed)} cannot be changed by request, as names, addresses, ports, folders and sizes of "
        "files are those of the start; nothing was changed. Set it in the configuration file and start again"
    )


def changed_by_request(settings: S, wanted: Mapping[str, str]) -> S:
    """Returns the settings changed by those of the wanted ones that they have; raises `SettingsError`."""
    kind = type(settings)
    names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    for key, text in wanted.items():
        if len(text) > LONGEST_VALUE or escaped(key + text.strip()) != key + text.strip():
            raise SettingsError(
                f"{escaped(key, 100)} (request) is not one line of at most {LONGEST_VALUE} characters "
                "that can be seen; nothing was changed"
            )
    changes: dict[str, Any] = {
        names[key]: convert(kind, key, text, "request") for key, text in wanted.items() if key in names
    }
    return msgspec.structs.replace(settings, **changes) if changes else settings


def check_stored(kinds: Iterable[type[msgspec.Struct]], values: Mapping[str, str], file: str) -> None:
    """Raise `SettingsError` if a server could not be started with these values of its file."""
    for kind in kinds:
        known = kind.__struct_encode_fields__
        resolve(kind, [Layer(file, {key: text for key, text in values.items() if key in known})])


def _read(annotation: Any, text: str) -> Any:
    kind = plain_type(annotation)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if not text and type(None) in get_args(kind):
        return None
    return msgspec.convert(text, annotation, strict=False)


def _wanted(kind: Any) -> str:
    from msgspec import inspect  # here, because only a mistake needs it

    info = inspect.type_info(kind)
    if isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.BoolType):
        return "true or false"
    if isinstance(info, inspect.LiteralType):
        return f"one of {', '.join(map(str, info.values))}"
    if isinstance(info, inspect.IntType) and info.ge is not None and info.le is not None:
        return f"a whole number from {info.ge} to {info.le}"
    return "a whole number" if isinstance(info, inspect.IntType) else "a text"


def as_texts(settings: msgspec.Struct) -> dict[str, str]:
    """Returns every setting as text, by its property name."""
    texts: dict[str, str] = {}
    names = zip(settings.__struct_fields__, settings.__struct_encode_fields__, strict=True)
    for name, key in names:
        value = getattr(settings, name)
        texts[key] = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
    return texts


def nearest(key: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown key: the known one that was perhaps meant."""
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
