"""Clients that a worker process keeps."""

from __future__ import annotations

import os

from cometmq.spark.process_cache import MAX_KEPT, ProcessCache


class Client:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_the_same_settings_get_the_same_client() -> None:
    cache = ProcessCache(Client.close)
    assert cache.get(("group", 1), Client) is cache.get(("group", 1), Client)
    assert cache.get(("group", 2), Client) is not cache.get(("group", 1), Client)


def test_the_least_recently_used_client_is_closed_when_there_are_too_many() -> None:
    cache = ProcessCache(Client.close)
    clients = [cache.get(number, Client) for number in range(MAX_KEPT)]
    cache.get(0, Client)
    cache.get("one more", Client)
    assert [client.is_closed for client in clients] == [False, True, *[False] * (MAX_KEPT - 2)]
    assert len(cache) == MAX_KEPT


def test_a_forked_process_has_none() -> None:
    cache = ProcessCache(Client.close)
    cache.get("settings", Client)
    child = os.fork()
    if child == 0:
        os._exit(len(cache))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(cache) == 1
