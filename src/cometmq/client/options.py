"""The options of clients with their defaults and meanings, for `help(Producer)` and for the page of options.

Rules kept here:
- The sentence of an option is the text below its field in the settings struct, and is written nowhere else.
- It is read from the source when somebody asks, so that importing a client costs nothing. Without the source,
  the help has names and defaults only.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Final, NamedTuple, TypeVar

import msgspec

T = TypeVar("T", bound=type)

KEYWORDS: Final = {
    "serializer": "Encodes and decodes values; None leaves bodies as they are.",
    "interceptors": "Called in this order before, and in reverse after, every send or call of a listener.",
    "rebalance_listener": "Hears which queues come and go.",
    "check": "Answers brokers how a transaction ended; give this or a `listener`.",
    "listener": "A `TransactionListener`, which runs local transactions and checks them.",
    "topics": "Topics whose brokers check back transactions of an earlier run.",
    "check_threads": "How many checks run at once.",
}
"""The keywords of constructors that are no settings."""


class Option(NamedTuple):
    """One option of a client."""

    name: str
    default: str
    meaning: str


def documented(
    settings: type[msgspec.Struct], keywords: Collection[str] = (), names: Collection[str] | None = None
) -> Callable[[T], T]:
    """Decorates a client: its docstring ends with its options, `names` or all of the settings."""

    def decorate(client: T) -> T:
        client.__doc__ = _Doc(client.__doc__ or "", settings, keywords, names)  # type: ignore[assignment]
        return client

    return decorate


class _Doc:
    """A docstring that is made when it is read."""

    def __init__(
        self,
        text: str,
        settings: type[msgspec.Struct],
        keywords: Collection[str],
        names: Collection[str] | None,
    ) -> None:
        self._text = inspect.cleandoc(text)
        self._settings = settings
        self._keywords = keywords
        self._names = names

    def __get__(self, instance: object, owner: type) -> str:
        options = [*keyword_options(owner, self._keywords), *options_of(self._settings, self._names)]
        lines = [f"- `{each.name}` ({each.default}): {each.meaning}" for each in options]
        return "\n".join([self._text, "", "Options and their defaults:", "", *lines])


def keyword_options(client: type, keywords: Collection[str]) -> Iterator[Option]:
    """The options of a client that are no settings."""
    parameters = inspect.signature(client).parameters
    for name in keywords:
        yield Option(name, repr(parameters[name].default), KEYWORDS[name])


def options_of(settings: type[msgspec.Struct], names: Collection[str] | None = None) -> Iterator[Option]:
    """The options that are fields of a settings struct, in its order."""
    meanings: dict[str, str] = {}
    for each in settings.__mro__:
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            meanings = _sentences(each) | meanings
    for field in msgspec.structs.fields(settings):
        if names is None or field.name in names:
            yield Option(field.name, _text(field.default), meanings.get(field.name, ""))


def _sentences(struct: type) -> dict[str, str]:
    """The text below each field of a struct."""
    try:
        (declared,) = ast.parse(inspect.getsource(struct)).body
    except OSError:  # installed without its source
        return {}
    assert isinstance(declared, ast.ClassDef)
    found: dict[str, str] = {}
    field = None
    for node in declared.body:
        if field is not None and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found[field] = " ".join(str(node.value.value).split())
        is_field = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        field = node.target.id if is_field else None  # type: ignore[attr-defined]
    return found


def _text(default: object) -> str:
    if isinstance(default, Enum):
        return default.name
    if isinstance(default, frozenset):
        return f"{{{', '.join(map(str, sorted(default)))}}}"
    return repr(default) if type(default).__module__ == "builtins" else f"{type(default).__name__}()"
