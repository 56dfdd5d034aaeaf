"""The small HTTP server: its pages, and what it does when too much is asked of it (B13, N9)."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from cometmq.remoting.metrics import status_server
from cometmq.remoting.metrics.status_server import TEXT, Page, Pages, StatusServer, health_page
from tests.waiting import wait_until

PATIENCE_S = 30
SOON_S = 1.0
"""Within this time `/ok` is answered, whoever else is there: one of several tries, on a busy machine."""


class Slow:
    """A page that is made when the test says so."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, accept: str) -> Page:
        self.asked.set()
        assert self.go_on.wait(PATIENCE_S)
        return Page(HTTPStatus.OK, TEXT, b"slow\n")


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def server(slow: Slow) -> Iterator[StatusServer]:
    def broken(accept: str) -> Page:
        raise RuntimeError("dictionary changed size during iteration")

    pages: Pages = {
        "/slow": slow,
        "/ok": lambda _: health_page(None),
        "/broken": broken,
        "/large": lambda _: Page(HTTPStatus.OK, TEXT, b"x" * 8_000_000),
        "/accept": lambda accept: Page(HTTPStatus.OK, TEXT, accept.encode()),
    }
    running = StatusServer("127.0.0.1", 0, pages)
    running.open()
    yield running
    slow.go_on.set()
    running.close()


def get(server: StatusServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextlib.contextmanager
def connections(server: StatusServer, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that have said something, and read nothing."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            each = socket.socket()
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", server.server_port))
            opened.append(stack.enter_context(each))
            each.sendall(said)
        yield opened


def is_answered_soon(server: StatusServer) -> bool:
    times = []
    for _ in range(5):
        begun = time.monotonic()
        assert get(server, "/ok") == (200, b"ok\n")
        times.append(time.monotonic() - begun)
    return min(times) < SOON_S and max(times) < status_server.REQUEST_S


def is_closed_after_a_byte(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"X")
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize(
    "said",
    [b"", b"G", b"GET /ok HTTP/1.1\r\nHost: x\r\n", b"GET /large HTTP/1.0\r\n\r\n", b"\x16\x03\x01"],
    ids=["silent", "one byte", "no end", "does not read", "TLS"],
)
def test_slow_connections_hinder_nobody(server: StatusServer, said: bytes) -> None:
    with connections(server, 3 * status_server.MOST_VISITORS, said):
        assert is_answered_soon(server)


def test_a_byte_now_and_then_gives_no_more_time(
    server: StatusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_server, "REQUEST_S", 0.5)
    with connections(server, 1) as (slow_loris,):
        wait_until(lambda: is_closed_after_a_byte(slow_loris))


def test_who_does_not_read_an_answer_is_cut_off(
    server: StatusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_server, "ANSWER_S", 0.2)
    with connections(server, 1, b"GET /large HTTP/1.0\r\n\r\n"):
        wait_until(lambda: bool(server._waiting))
        wait_until(lambda: not server._waiting)


def test_answers_that_nobody_takes_do_not_add_up(server: StatusServer) -> None:
    with connections(server, 10, b"GET /large HTTP/1.0\r\n\r\n"):
        wait_until(lambda: sum(server._waiting.values()) > 0)
        assert is_answered_soon(server)
        assert sum(server._waiting.values()) <= status_server.MOST_ANSWER_BYTES


@pytest.mark.parametrize("said", [b"GET /" + b"x" * 20_000, b"GET /ok HTTP/1.0\r\n" + b"A: b\r\n" * 4000])
def test_a_request_has_a_limit(server: StatusServer, said: bytes) -> None:
    with connections(server, 1) as (long,):
        with contextlib.suppress(OSError):
            long.sendall(said)
        with contextlib.suppress(OSError):
            assert b" 431 " in long.recv(100)
    assert is_answered_soon(server)


def test_a_page_that_is_slow_for_all_is_refused_to_the_next_and_others_are_not(
    server: StatusServer, slow: Slow
) -> None:
    answers: list[tuple[int, bytes]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(get(server, "/slow")))
        for _ in range(status_server.MOST_AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: server._making["/slow"] == status_server.MOST_AT_ONCE)
    assert get(server, "/slow") == (503, b"too many ask for this; ask again\n")
    assert is_answered_soon(server)
    slow.go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert answers == [(200, b"slow\n")] * status_server.MOST_AT_ONCE
    assert get(server, "/slow") == (200, b"slow\n")


def test_an_answer_under_way_is_finished_before_the_server_is_closed(slow: Slow) -> None:
    server = StatusServer("127.0.0.1", 0, {"/slow": slow})
    server.open()
    answers: list[tuple[int, bytes]] = []
    asking = threading.Thread(target=lambda: answers.append(get(server, "/slow")))
    asking.start()
    assert slow.asked.wait(PATIENCE_S)
    with connections(server, 1):
        closing = threading.Thread(target=server.close)
        closing.start()
        slow.go_on.set()
        closing.join(PATIENCE_S)
    asking.join(PATIENCE_S)
    assert answers == [(200, b"slow\n")]
    with pytest.raises(ConnectionError):
        get(server, "/slow")


def test_pages_are_found_by_their_path_alone(server: StatusServer) -> None:
    assert get(server, "/ok?verbose=1") == (200, b"ok\n")
    assert get(server, "/ok", "HEAD") == (200, b"")
    assert get(server, "/accept", Accept="text/*") == (200, b"text/*")
    known = b"there is nothing here; ask for /slow, /ok, /broken, /large, /accept\n"
    assert get(server, "/nothing") == (404, known)
    assert get(server, "/ok", "POST")[0] == 501
    assert get(server, "/large")[1] == b"x" * 8_000_000


@pytest.mark.parametrize(
    ("said", "status"), [(b"GET /ok HTTP/1.0\n\n", b"200"), (b"GET\r\n\r\n", b"400"), (b"\r\n\r\n", b"400")]
)
def test_other_ways_to_write_a_request_are_understood_or_refused(
    server: StatusServer, said: bytes, status: bytes
) -> None:
    with connections(server, 1, said) as (asking,):
        asking.settimeout(PATIENCE_S)
        assert asking.recv(100).split()[1] == status


def test_a_page_that_fails_says_so_and_the_next_one_is_served(server: StatusServer) -> None:
    status, text = get(server, "/broken")
    assert status == 500
    assert text.endswith(b"during iteration; ask again\n")
    assert get(server, "/ok") == (200, b"ok\n")
