"""Request handlers: the function for each request code, and its possible results.

A handler is called as `handler(header, request, connection)` on the event loop; a method with `@handles` may
leave out what it does not need. It returns
- an `Answer`: written in the same turn of the loop. This is the hot path: no task, no await;
- an awaitable of an `Answer`: runs as a task, for requests that wait;
- `DEFERRED`: the handler keeps the request and calls `connection.answer(request, …)` later. An orderly stop
  does not wait for that: the handler has to answer before the server stops.

Requests of one code that follow one another in one read can be handled as a group, which makes the most
frequent ones cheap. Such a code has a group handler beside the plain one; the plain one gets one-way
requests, binary headers, and everything if there are hooks. A group handler is called as `handler(requests,
connection)` and returns for each request an `Answer`, `DEFERRED`, or the encoded frame of its answer with a
JSON header.

A handler may raise a `CometError`: the peer gets its code (SYSTEM_ERROR if it has none) and its message. Any
other exception is a defect: it is logged with its traceback, and the peer gets SYSTEM_ERROR with a short
line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from cometmq.wire.codes import ResponseCode
from cometmq.wire.frame.command import Command, Payload
from cometmq.wire.frame.request_reader import RequestReader, request_reader, start_of_request
from cometmq.wire.header.schema import Header

if TYPE_CHECKING:  # a handler is given the connection that finds and calls it
    from cometmq.remoting.connection import Connection


class Answer(msgspec.Struct, gc=False):
    code: int = ResponseCode.SUCCESS.value
    header: Header | None = None
    body: Payload = b""
    """One buffer, or chunks such as slices of a mapped file."""
    remark: str | None = None
    fields: Mapping[str, str | None] | None = None
    """Plain custom fields, in addition to or instead of a declared header."""
    head: bytes | None = None
    """The whole encoded header, if the request came as JSON and its handler has a template."""


class Deferred:
    """The type of `DEFERRED`."""


DEFERRED: Final = Deferred()

Result = Answer | Awaitable[Answer] | Deferred
Handler = Callable[[Any, Command, "Connection"], Result]
GroupResult = Answer | Deferred | bytes
GroupHandler = Callable[[Sequence[Command], "Connection"], Sequence[GroupResult]]


class NoHeader(Header):
    """The header of a request that has none."""


class HandlerEntry(msgspec.Struct, frozen=True):
    """A handler and the header it takes."""

    code: int
    header: type[Header]
    function: Handler
    group_function: GroupHandler | None = None


_ARGUMENTS: Final = ("header", "request", "connection")
M = TypeVar("M", bound=Callable[..., Result])


def handles(code: IntEnum, header: type[Header] = NoHeader) -> Callable[[M], M]:
    """Mark a method as the handler of a request code; `HandlerTable.add_handlers` finds it.

    Its parameters are those of `header`, `request` and `connection` that it needs, in this order.
    """

    def mark(method: M) -> M:
        method.__dict__.setdefault("_handles", []).append((code, header))
        return method

    return mark


R = TypeVar("R", bound=Callable[..., Sequence[GroupResult]])


def handles_groups(code: IntEnum) -> Callable[[R], R]:
    """Mark a method as the group handler of a request code, beside its plain handler.

    For a one-way request it returns an `Answer`, which is counted and not sent.
    """

    def mark(method: R) -> R:
        method.__dict__["_handles_groups"] = code
        return method

    return mark


class HandlerTable:
    """The handlers of one endpoint, by request code."""

    def __init__(self) -> None:
        self._entries: dict[int, HandlerEntry] = {}
        self.by_start: dict[bytes, tuple[HandlerEntry, RequestReader]] = {}
        """Handlers and one-pass readers by the first bytes of their requests."""

    def add(
        self, code: int, header: type[Header], function: Handler, group_function: GroupHandler | None = None
    ) -> None:
        """Serve a code; a code served already is refused."""
        if int(code) in self._entries:
            name = code.name if isinstance(code, IntEnum) else code
            raise ValueError(f"{name} has a handler already")
        entry = self._entries[int(code)] = HandlerEntry(int(code), header, function, group_function)
        start = start_of_request(int(code))
        if start is not None and header is not NoHeader:
            self.by_start[start] = entry, request_reader(int(code), header)

    def add_handlers(self, owner: object) -> None:
        """Serve every code for which `owner` has a method marked with `@handles`."""
        names = dir(type(owner))
        of_groups: dict[int, GroupHandler] = {}
        for name in names:
            group_code = getattr(getattr(type(owner), name), "_handles_groups", None)
            if group_code is not None:
                of_groups[group_code] = getattr(owner, name)
        for name in names:
            for code, header in getattr(getattr(type(owner), name), "_handles", ()):
                self.add(code, header, _handler(getattr(owner, name), header), of_groups.get(code))

    def get(self, code: int) -> HandlerEntry | None:
        return self._entries.get(code)

    @property
    def codes(self) -> frozenset[int]:
        return frozenset(self._entries)


def _handler(method: MethodType, header: type[Header]) -> Handler:
    """The handler that a method is, or one that hands it those arguments that it takes."""
    code = method.__func__.__code__
    names = code.co_varnames[1 : code.co_argcount]
    declared = method.__func__.__annotations__.get("header", header.__name__)
    if declared not in (header, header.__name__):
        raise TypeError(f"{method.__qualname__} is marked for {header.__name__} and takes {declared}")
    if names == _ARGUMENTS:
        return method
    if names == ("header",):  # the most frequent case
        return lambda header, request, connection: method(header)
    wanted = [_ARGUMENTS.index(name) for name in names]
    return lambda *arguments: method(*[arguments[index] for index in wanted])


class RequestHook(Protocol):
    """Sees every request before its handler and every answer before it is written."""

    def before_request(self, request: Command, connection: Connection) -> Answer | None:
        """Return an answer to refuse the request, None to let it through. May raise a `CometError`."""

    def after_request(self, request: Command, answer: Answer, connection: Connection) -> None:
        """Called with the answer, also for one-way requests, whose answer is not written."""
