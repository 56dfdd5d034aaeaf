"""The small HTTP server: its pages, and what it does when too much is asked of it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from cometmq.remoting import http_status
from cometmq.remoting.http_status import TEXT, Page, Pages, StatusServer, verdict

PATIENCE_S = 30


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
def server(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusServer]:
    monkeypatch.setattr(http_status, "MOST_AT_ONCE", 1)

    def broken(accept: str) -> Page:
        raise RuntimeError("dictionary changed size during iteration")

    pages: Pages = {"/slow": slow, "/ok": lambda _: verdict(None), "/broken": broken}
    running = StatusServer("127.0.0.1", 0, pages)
    running.open()
    yield running
    slow.go_on.set()
    running.close()


def get(server: StatusServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def get_when_free(server: StatusServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    """The same, again until there is an answer: who was answered before may not quite be gone."""
    while True:
        try:
            return get(server, path, method)
        except (ConnectionError, http.client.BadStatusLine):
            continue


def test_who_comes_while_enough_are_answered_is_closed_and_answered_later(
    server: StatusServer, slow: Slow
) -> None:
    answers: list[tuple[int, bytes]] = []
    first = threading.Thread(target=lambda: answers.append(get(server, "/slow")))
    first.start()
    assert slow.asked.wait(PATIENCE_S)
    with pytest.raises((ConnectionError, http.client.BadStatusLine)):
        get(server, "/ok")
    slow.go_on.set()
    first.join(PATIENCE_S)
    assert answers == [(200, b"slow\n")]
    assert get_when_free(server, "/ok") == (200, b"ok\n")


def test_pages_are_found_by_their_path_alone(server: StatusServer) -> None:
    assert get(server, "/ok?verbose=1") == (200, b"ok\n")
    assert get_when_free(server, "/ok", "HEAD") == (200, b"")
    assert get_when_free(server, "/nothing") == (404, b"there is nothing here; ask for /slow, /ok, /broken\n")
    assert get_when_free(server, "/ok", "POST")[0] == 501


def test_a_page_that_fails_says_so_and_the_next_one_is_served(server: StatusServer) -> None:
    status, text = get(server, "/broken")
    assert status == 500
    assert text.endswith(b"during iteration; ask again\n")
    assert get_when_free(server, "/ok") == (200, b"ok\n")
