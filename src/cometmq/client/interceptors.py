"""The check of interceptors; see `producer/interceptor.py` and `consumer/interceptor.py` for what they do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from cometmq.client.consumer.listener import is_async
from cometmq.model.errors import SettingsError

Interceptor = TypeVar("Interceptor")


def checked_interceptors(given: Iterable[Interceptor], kind: type[Interceptor]) -> tuple[Interceptor, ...]:
    """The interceptors of a client; refuses what has not the methods of this kind."""
    if not isinstance(given, Iterable):
        raise SettingsError(f"interceptors is a list; write interceptors=[{type(given).__name__}(…)]")
    interceptors = tuple(given)
    for each in interceptors:
        for name in (name for name in vars(kind) if not name.startswith("_")):
            method = getattr(each, name, None)
            if not callable(method) or is_async(method):
                lack = "has no" if method is None else "needs a plain, not a coroutine,"
                raise SettingsError(
                    f"interceptor {type(each).__name__} {lack} method {name}; derive from {kind.__name__}"
                )
    return interceptors
