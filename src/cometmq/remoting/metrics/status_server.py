"""A small HTTP server for `/metrics`, `/health` and `/ready`.

Rules kept here:
- It has its own thread and event loop: it answers while the server's loop is busy or hangs. Pages are made on
  further threads, at most `MOST_AT_ONCE` of a path at a time; further requests for the path get 503. No path
  waits for another, so `/health` answers while all others are slow.
- A request has to be complete within `REQUEST_S`, an answer taken within `ANSWER_S`, each as a whole:
  dripping bytes wins no time. A request has at most `MOST_REQUEST_BYTES`.
- At most `MOST_VISITORS` connections are open. One more displaces the oldest that has not sent its request or
  does not take its answer. Untaken answers have at most `MOST_ANSWER_BYTES`; more displace the oldest.
- `/health` is for a supervisor that restarts the process, `/ready` for a load balancer. Both answer 200 and
  `ok`, or 503 and the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, NamedTuple

MOST_AT_ONCE: Final = 4
MOST_VISITORS: Final = 64
MOST_REQUEST_BYTES: Final = 8 * 1024
MOST_ANSWER_BYTES: Final = 16 * 1024 * 1024
REQUEST_S: Final = 5.0
ANSWER_S: Final = 10.0
TEXT: Final = "text/plain; charset=utf-8"

_BACKLOG: Final = 128
_REST_S: Final = 0.1
_find_end: Final = re.compile(rb"\r?\n\r?\n").search
_METHODS: Final = ("GET", "HEAD")


class Page(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


Pages = dict[str, Callable[[str], Page]]
"""Page makers by path; called with the Accept header."""


class _Request(NamedTuple):
    method: str
    path: str
    accept: str


def health_page(trouble: str | None) -> Page:
    """Returns the page of a check: `ok`, or the problem."""
    if trouble is None:
        return Page(HTTPStatus.OK, TEXT, b"ok\n")
    return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"{trouble}\n".encode())


class StatusServer:
    """Serves a few pages. Listens from the start; `open` begins to answer."""

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        self.pages = pages
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.server_port: int = self._socket.getsockname()[1]
        self._making = dict.fromkeys(pages, 0)
        self._makers = ThreadPoolExecutor(MOST_AT_ONCE * len(pages), thread_name_prefix="status-page")
        self._waiting: dict[asyncio.Task[None], int] = {}
        """Connections without a request, or with the size of an untaken answer; the oldest first."""
        self._visits: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def open(self) -> None:
        is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(is_open,), name="status", daemon=True)
        self._thread.start()
        is_open.wait()

    def close(self) -> None:
        """Finish current answers, then stop; blocks."""
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()
        self._makers.shutdown()
        self._socket.close()

    # On the thread of the server

    def _run(self, is_open: threading.Event) -> None:
        # Not Windows' own kind of loop, which cannot watch a socket.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve(is_open))

    async def _serve(self, is_open: threading.Event) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        loop.add_reader(self._socket, self._accept)
        is_open.set()
        await self._stopped.wait()
        loop.remove_reader(self._socket)
        for task in [task for task, size in self._waiting.items() if not size]:
            task.cancel()  # who has not asked yet
        await asyncio.gather(*self._visits, return_exceptions=True)

    def _accept(self) -> None:
        """Take in who wants to come in."""
        for _ in range(_BACKLOG):
            try:
                visitor, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError:  # it went away again, or there is no descriptor left
                if self._waiting:
                    self._displace(next(iter(self._waiting)))
                self._rest()
                return
            visitor.setblocking(False)
            task = asyncio.ensure_future(self._visit(visitor))
            self._visits.add(task)
            task.add_done_callback(lambda task, visitor=visitor: self._left(task, visitor))  # type: ignore[misc]
            self._wait_for(task, 0)

    def _rest(self) -> None:
        """Accept again a moment later."""
        assert self._loop is not None
        self._loop.remove_reader(self._socket)
        self._loop.call_later(_REST_S, self._resume)

    def _resume(self) -> None:
        if self._loop is not None and not self._stopped.is_set():
            self._loop.add_reader(self._socket, self._accept)

    def _left(self, task: asyncio.Task[None], visitor: socket.socket) -> None:
        self._visits.discard(task)
        self._waiting.pop(task, None)
        visitor.close()

    def _displace(self, task: asyncio.Task[None]) -> None:
        del self._waiting[task]
        task.cancel()

    def _wait_for(self, task: asyncio.Task[None], size: int) -> None:
        """Let a connection wait for its client, and displace the oldest ones over the limits."""
        waiting = self._waiting
        while waiting and (
            len(waiting) >= MOST_VISITORS or (size and size + sum(waiting.values()) > MOST_ANSWER_BYTES)
        ):
            self._displace(next((each for each in waiting if waiting[each] or not size), next(iter(waiting))))
        waiting[task] = size

    async def _visit(self, visitor: socket.socket) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(REQUEST_S):
                request = await _read_request(loop, visitor)
            self._waiting.pop(task, None)
            answer = _encode(await self._page(request), request)
            self._wait_for(task, len(answer))
            async with asyncio.timeout(ANSWER_S):
                await loop.sock_sendall(visitor, answer)
            visitor.shutdown(socket.SHUT_WR)

    async def _page(self, request: _Request | Page) -> Page:
        if isinstance(request, Page):
            return request
        path, making = request.path, self._making
        if path not in self.pages:
            known = ", ".join(self.pages)
            return Page(HTTPStatus.NOT_FOUND, TEXT, f"there is nothing here; ask for {known}\n".encode())
        if making[path] >= MOST_AT_ONCE:
            return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"too many ask for this; ask again\n")
        making[path] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._makers, _made, self.pages[path], request.accept
            )
        finally:
            making[path] -= 1


def _made(make: Callable[[str], Page], accept: str) -> Page:
    try:
        return make(accept)
    except Exception as error:  # a table that changed in the middle of a scrape: the next one may succeed
        text = f"{type(error).__name__}: {error}; ask again\n"
        return Page(HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, text.encode("utf-8", "replace"))


async def _read_request(loop: asyncio.AbstractEventLoop, visitor: socket.socket) -> _Request | Page:
    """Returns the request, or the page that refuses it."""
    data = b""
    while (end := _find_end(data)) is None:
        if len(data) > MOST_REQUEST_BYTES:
            text = f"a request has at most {MOST_REQUEST_BYTES} bytes\n"
            return Page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TEXT, text.encode())
        more = await loop.sock_recv(visitor, MOST_REQUEST_BYTES)
        if not more:
            raise ConnectionError("the client went away")
        data += more
    first, *lines = data[: end.start()].decode("latin-1").split("\n")
    words = first.split()
    if len(words) not in (2, 3):
        return Page(HTTPStatus.BAD_REQUEST, TEXT, b"this is not a request of HTTP\n")
    if words[0] not in _METHODS:
        return Page(HTTPStatus.NOT_IMPLEMENTED, TEXT, b"only GET and HEAD are answered\n")
    fields = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return _Request(words[0], words[1].partition("?")[0], headers.get("accept", ""))


def _encode(page: Page, request: _Request | Page) -> bytes:
    head = (
        f"HTTP/1.0 {page.status.value} {page.status.phrase}\r\nServer: CometMQ\r\n"
        f"Content-Type: {page.content_type}\r\nContent-Length: {len(page.body)}\r\nConnection: close\r\n\r\n"
    )
    has_body = isinstance(request, Page) or request.method != "HEAD"
    return head.encode("latin-1") + (page.body if has_body else b"")
