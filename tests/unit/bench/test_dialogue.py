"""The generator of dialogues against a server that answers, refuses, or goes away."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from bench.errors import LoadError
from bench.load.dialogue import Dialogue, dialogues_in_this_process
from bench.load.frames import json_request, read_answer
from bench.load.results import Shape
from bench.message_types.load import transactions

ASK = partial(json_request, 1, {}, b"")


def answer(opaque: int, code: int, fields: dict[str, str]) -> bytes:
    header = {"code": code, "extFields": fields, "flag": 1, "opaque": opaque, "remark": "no"}
    text = json.dumps(header).encode()
    return (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text


class Server:
    """Answers every request of one connection with the same, or goes away; remembers what was asked."""

    def __init__(self, code: int = 0, fields: dict[str, str] | None = None, closes: bool = False) -> None:
        self.codes: list[int] = []
        self._code, self._fields, self._closes = code, fields or {}, closes

    def serve(self, listener: socket.socket) -> None:
        stream, _ = listener.accept()
        with stream, stream.makefile("rb") as reader:
            while length := reader.read(4):
                request = read_answer(length + reader.read(int.from_bytes(length, "big")))
                self.codes.append(request.code)
                if self._closes:
                    return
                try:
                    stream.sendall(answer(request.opaque, self._code, self._fields))
                except OSError:
                    return


@contextmanager
def running(server: Server) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            thread.join(5)


def test_what_dialogues_have_done_is_counted_and_each_is_carried_to_its_end() -> None:
    begun, ended = [], []

    def dialogue() -> Dialogue:
        begun.append(1)
        first = yield [ASK]
        rest = yield [ASK, ASK, ASK]
        assert [len(first), len(rest)] == [1, 3]
        ended.append(1)
        return 3

    server = Server()
    with running(server) as address:
        result = dialogues_in_this_process(address, dialogue, Shape(1, 4), 0.3)
    assert len(begun) == len(ended)
    assert 4 * len(ended) == len(server.codes)
    assert 0 < result.requests <= 3 * len(ended)
    assert result.rate == pytest.approx(result.requests / result.seconds)


def test_a_transaction_is_a_half_message_and_its_end() -> None:
    told = {"msgId": "7F00000100002A9F" + f"{77:016X}", "queueOffset": "5", "transactionId": "T"}
    server = Server(fields=told)
    with running(server) as address:
        result = dialogues_in_this_process(address, transactions("orders"), Shape(1, 1), 0.2)
    assert result.requests > 0
    assert server.codes == [310, 37] * (len(server.codes) // 2)


@pytest.mark.parametrize(
    ("server", "problem"),
    [(Server(code=13), "code 13: no"), (Server(closes=True), "closed the connection")],
    ids=["refuses", "goes away"],
)
def test_a_server_that_does_not_play_along_ends_the_run(server: Server, problem: str) -> None:
    with running(server) as address, pytest.raises(LoadError, match=problem):
        dialogues_in_this_process(address, transactions("orders"), Shape(1, 2), 5.0)
