"""The file of key-value settings goes back and forth between Apache's name server and ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compat.apache import ApacheNamesrv, Server
from tests.compat.ask import (
    DELETE_KV_CONFIG,
    GET_KV_CONFIG,
    PUT_KV_CONFIG,
    QUERY_NOT_FOUND,
    SUCCESS,
    ask,
)
from tests.compat.cluster import MakeNamesrv

ORDERS = "ORDER_TOPIC_CONFIG"
# Slashes, quotes and letters of other alphabets are where writers of JSON differ.
ITEMS = {
    (ORDERS, "Queue"): "broker-a:4;broker-b:8",
    ("Settings", "path"): "a/b \\ c",
    ("Settings", "said"): "he said \"no\", then <left> & 'went'",
    ("Settings", "tête"): "Zürich 東京 🚀\ttab\nline",
    ("Settings", "empty"): "",
}


def put(server: Server, namespace: str, key: str, value: str) -> None:
    fields = {"namespace": namespace, "key": key, "value": value}
    assert ask(server.address, PUT_KV_CONFIG, fields).code == SUCCESS


def delete(server: Server, namespace: str, key: str) -> None:
    assert ask(server.address, DELETE_KV_CONFIG, {"namespace": namespace, "key": key}).code == SUCCESS


def get(server: Server, namespace: str, key: str) -> str | None:
    answer = ask(server.address, GET_KV_CONFIG, {"namespace": namespace, "key": key})
    if answer.code == QUERY_NOT_FOUND:
        return None
    assert answer.code == SUCCESS
    return answer.fields["value"]


def fill(server: Server) -> None:
    for (namespace, key), value in ITEMS.items():
        put(server, namespace, key, value)
    put(server, "Settings", "short-lived", "x")
    delete(server, "Settings", "short-lived")


@pytest.mark.parametrize("writer_is_ours", [False, True], ids=["apache-then-ours", "ours-then-apache"])
def test_one_reads_what_the_other_wrote(
    tmp_path: Path, make_namesrv: MakeNamesrv, writer_is_ours: bool
) -> None:
    """N8: settings survive a change of the name server, in both directions."""
    order: list[MakeNamesrv] = (
        [make_namesrv, ApacheNamesrv] if writer_is_ours else [ApacheNamesrv, make_namesrv]
    )
    settings = {"kvConfigPath": str(tmp_path / "shared" / "kvConfig.json")}
    with order[0](tmp_path / "writer", settings) as writer:
        fill(writer)
        # A name server writes before it answers, so even a killed one has kept everything.
        writer.kill()
    with order[1](tmp_path / "reader", settings) as reader:
        assert {item: get(reader, *item) for item in ITEMS} == ITEMS
        assert get(reader, "Settings", "short-lived") is None
        put(reader, "Settings", "path", "changed")
        assert get(reader, "Settings", "path") == "changed"


def test_the_file_is_written_as_apache_writes_it(tmp_path: Path, make_namesrv: MakeNamesrv) -> None:
    """N8: one line of JSON, the state before the last change in a second file, the same bytes as Apache's."""
    texts: list[list[bytes]] = []
    for name, make in {"apache": ApacheNamesrv, "ours": make_namesrv}.items():
        path = tmp_path / name / "kept" / "kvConfig.json"
        backup = path.with_name("kvConfig.json.bak")
        with make(tmp_path / name, {"kvConfigPath": str(path)}) as server:
            seen: list[bytes] = []
            for (namespace, key), value in ITEMS.items():
                if namespace == "Settings":
                    put(server, "Settings", key, value)
                    seen.append(path.read_bytes())
                    assert json.loads(seen[-1])["configTable"]["Settings"][key] == value
                    # The order of several keys is Java's hash order; one at a time there is nothing to order.
                    delete(server, "Settings", key)
                    seen.extend((path.read_bytes(), backup.read_bytes()))
            texts.append(seen)
    apache, ours = texts
    assert apache[1] == b'{"configTable":{"Settings":{}}}'
    assert ours == apache
