"""Every type that a public signature names can be imported from `cometmq`."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any, TypeVar, cast, get_overloads

import pytest

import cometmq
import cometmq.aio
import cometmq.otel
from cometmq.client.instance.members import ConsumerMember, TransactionMember

MODULES = (cometmq, cometmq.aio, cometmq.otel)
FOR_THE_INSTANCE = {*dir(ConsumerMember), *dir(TransactionMember), "kind"} - {"__init__"}
"""What a client offers to its client instance alone."""
MADE_BY_OTHERS = ("Transaction",)
"""Classes that applications never construct."""
PUBLIC = {name: getattr(cometmq, name) for name in cometmq.__all__}


def texts(owner: Any) -> Iterator[tuple[str, str]]:
    """The annotations of a class and of its public methods, or of a function; each with its module."""
    if inspect.isfunction(owner):
        for function in (owner, *get_overloads(owner)):
            home = inspect.unwrap(cast(FunctionType, function)).__module__
            yield from ((text, home) for text in function.__annotations__.values())
    elif inspect.isclass(owner):
        for each in owner.__mro__:
            if each.__module__.startswith("cometmq"):
                yield from texts_of_members(owner, each)


def texts_of_members(owner: type[Any], cls: type[Any]) -> Iterator[tuple[str, str]]:
    for name, text in vars(cls).get("__annotations__", {}).items():
        if not name.startswith("_") and name not in FOR_THE_INSTANCE:
            yield getattr(text, "__forward_arg__", text), cls.__module__
    for name, member in vars(cls).items():
        is_init = name == "__init__" and owner.__name__ not in MADE_BY_OTHERS
        if is_init or not (name.startswith("_") or name in FOR_THE_INSTANCE):
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function):
                yield from texts(function)


def named(text: str, module: str) -> Iterator[tuple[str, Any]]:
    """The names in an annotation, and what they are."""
    known = vars(sys.modules[module])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id in known:
            yield node.id, known[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            yield node.attr, getattr(known[node.value.id], node.attr)


def is_ours(value: Any) -> bool:
    """A class of this package, or an alias, which has no home; not what the standard library has."""
    if isinstance(value, TypeVar):
        return False
    home = getattr(value, "__module__", "typing")
    is_alias = home in ("typing", "types", "collections.abc") and hasattr(value, "__args__")
    return home.startswith("cometmq") or is_alias


@pytest.mark.parametrize(
    "name",
    [f"{module.__name__}.{name}" for module in MODULES for name in module.__all__ if name != "__version__"],
)
def test_the_types_in_its_signatures_are_public(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    owner = getattr(sys.modules[module], attribute)
    missing = {
        each
        for text, home in texts(owner)
        for each, value in named(text, home)
        if is_ours(value) and each not in PUBLIC and getattr(cometmq.aio, each, None) is not value
    }
    assert missing == set()


def test_the_modules_show_their_public_names_only() -> None:
    assert dir(cometmq.aio) == sorted(cometmq.aio.__all__)
    assert set(cometmq.aio.__all__) < set(cometmq.__all__)
