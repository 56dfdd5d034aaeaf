"""A small HTTP server that says how a server of ours is: `/metrics`, `/health` and `/ready`.

Rules kept here:
- It has threads of its own: it answers while the event loop is busy, and can tell when the loop hangs.
- At most `MOST_AT_ONCE` requests are answered at the same time; further ones are closed unanswered, and
  whoever asks again a moment later is answered. Who takes longer than `PATIENCE_S` to ask or to read is cut
  off.
- `/health` is for whoever would restart the process, `/ready` for whoever would send it work. Both answer 200
  and `ok`, or 503 and the reason.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final, NamedTuple

MOST_AT_ONCE: Final = 8
PATIENCE_S: Final = 5.0
TEXT: Final = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """An answer."""

    status: HTTPStatus
    content_type: str
    body: bytes


Pages = dict[str, Callable[[str], Page]]
"""By path; each is given what the client accepts."""


def verdict(trouble: str | None) -> Page:
    """What a check says: `ok`, or what is wrong."""
    if trouble is None:
        return Page(HTTPStatus.OK, TEXT, b"ok\n")
    return Page(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"{trouble}\n".encode())


class StatusServer(ThreadingHTTPServer):
    """Serves a few pages; it listens from the start, and `open` begins to answer."""

    daemon_threads = False  # an answer under way is finished before what it reads is closed
    request_queue_size = 16

    def __init__(self, host: str, port: int, pages: Pages) -> None:
        self.pages = pages
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._thread: threading.Thread | None = None
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without asking for the name of the address, which can take long
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def open(self) -> None:
        """Answer from now on."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish what is being answered, and answer no more; blocks."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server: StatusServer
    server_version = "CometMQ"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        page = self._page(self.path.partition("?")[0])
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)

    def _page(self, path: str) -> Page:
        pages = self.server.pages
        make = pages.get(path)
        if make is None:
            known = ", ".join(pages)
            return Page(HTTPStatus.NOT_FOUND, TEXT, f"there is nothing here; ask for {known}\n".encode())
        try:
            return make(self.headers.get("Accept", ""))
        except Exception as error:  # a table that changed in the middle of a scrape: the next one may succeed
            text = f"{type(error).__name__}: {error}; ask again\n"
            return Page(HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""
