"""Key-value configuration of a running name server, on a real disk (N8)."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.testing import FailingFiles
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.namesrv import (
    DeleteKVConfigRequest,
    GetKVConfigRequest,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
)
from tests.answers import Told
from tests.integration.namesrv.namesrv_kit import OK, Visit, both_encodings, running_namesrv


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Visit]:
    async with running_namesrv(tmp_path) as visit:
        yield visit


async def put(namesrv: Visit, namespace: str, key: str, value: str, encoding: int = 0) -> Told:
    header = PutKVConfigRequest(namespace=namespace, key=key, value=value)
    return await namesrv.ask(RequestCode.PUT_KV_CONFIG, header, encoding=encoding)


async def get(namesrv: Visit, namespace: str, key: str, encoding: int = 0) -> Told:
    header = GetKVConfigRequest(namespace=namespace, key=key)
    return await namesrv.ask(RequestCode.GET_KV_CONFIG, header, encoding=encoding)


async def delete(namesrv: Visit, namespace: str, key: str, encoding: int = 0) -> Told:
    header = DeleteKVConfigRequest(namespace=namespace, key=key)
    return await namesrv.ask(RequestCode.DELETE_KV_CONFIG, header, encoding=encoding)


async def list_namespace(namesrv: Visit, namespace: str, encoding: int = 0) -> Told:
    header = GetKVListByNamespaceRequest(namespace=namespace)
    return await namesrv.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, header, encoding=encoding)


@both_encodings
async def test_values_are_put_read_listed_and_deleted(namesrv: Visit, encoding: int) -> None:
    """N8: the answers are those recorded from Apache's name server."""
    assert await get(namesrv, "NS", "k", encoding) == Told(
        22, "No config item, Namespace: NS Key: k", {}, b""
    )
    assert await list_namespace(namesrv, "NS", encoding) == Told(22, "No config item, Namespace: NS", {}, b"")
    value = 'v/2 "q" é €'
    assert await put(namesrv, "NS", "k", value, encoding) == OK
    assert await get(namesrv, "NS", "k", encoding) == Told(0, None, {"value": value}, b"")
    listed = '{"table":{"k":"v/2 \\"q\\" é €"}}'.encode()
    assert await list_namespace(namesrv, "NS", encoding) == Told(0, None, {}, listed)
    assert await delete(namesrv, "NS", "k", encoding) == OK
    assert await delete(namesrv, "NS", "k", encoding) == OK, "deleting what is not there is no error"
    assert await delete(namesrv, "Other", "k", encoding) == OK
    assert (await get(namesrv, "NS", "k", encoding)).code == 22
    assert await list_namespace(namesrv, "NS", encoding) == Told(0, None, {}, b'{"table":{}}')


async def test_an_empty_value_is_a_value(namesrv: Visit) -> None:
    """N8: recorded from Apache's name server."""
    assert await put(namesrv, "NS", "k3", "") == OK
    assert await get(namesrv, "NS", "k3") == Told(0, None, {"value": ""}, b"")


async def test_every_change_is_on_disk_when_it_is_answered(namesrv: Visit, tmp_path: Path) -> None:
    """N8: in the form of Apache's name server, with the text before beside it."""
    file, back_up = tmp_path / "kvConfig.json", tmp_path / "kvConfig.json.bak"
    await put(namesrv, "NS", "k1", "v1")
    assert file.read_bytes() == b'{"configTable":{"NS":{"k1":"v1"}}}'
    assert not back_up.exists()
    await put(namesrv, "NS", "k2", "v2")
    assert file.read_bytes() == b'{"configTable":{"NS":{"k1":"v1","k2":"v2"}}}'
    assert back_up.read_bytes() == b'{"configTable":{"NS":{"k1":"v1"}}}'
    await delete(namesrv, "NS", "k1")
    assert file.read_bytes() == b'{"configTable":{"NS":{"k2":"v2"}}}'
    assert sorted(os.listdir(tmp_path)) == ["kvConfig.json", "kvConfig.json.bak"]


async def test_values_are_there_after_a_restart(tmp_path: Path) -> None:
    """N8: read at start."""
    async with running_namesrv(tmp_path) as namesrv:
        await put(namesrv, "NS", "k", "é")
        await put(namesrv, "ORDER_TOPIC_CONFIG", "T1", "broker-a:4")
    async with running_namesrv(tmp_path) as namesrv:
        assert (await get(namesrv, "NS", "k")).fields == {"value": "é"}
        assert (await namesrv.broker().register()).body == b'{"table":{"T1":"broker-a:4"}}'


async def test_a_full_disk_is_an_error_and_nothing_has_changed(tmp_path: Path) -> None:
    """N8: neither in memory nor on disk; the next change works again."""
    files = FailingFiles()
    async with running_namesrv(tmp_path, files=files) as namesrv:
        await put(namesrv, "NS", "k", "old")
        before = (tmp_path / "kvConfig.json").read_bytes()
        files.fail_writes(errno.ENOSPC)
        refused = "the change could not be stored: No space left on device; nothing was changed"
        assert await put(namesrv, "NS", "k", "new") == Told(1, refused, {}, b"")
        assert await delete(namesrv, "NS", "k") == Told(1, refused, {}, b"")
        assert (await get(namesrv, "NS", "k")).fields == {"value": "old"}
        assert (tmp_path / "kvConfig.json").read_bytes() == before
        files.heal()
        assert await put(namesrv, "NS", "k", "new") == OK
        assert (await get(namesrv, "NS", "k")).fields == {"value": "new"}


async def test_a_folder_that_cannot_be_written_is_an_error_and_nothing_has_changed(tmp_path: Path) -> None:
    """N8: the folder is a file here, which stops even the superuser."""
    async with running_namesrv(tmp_path, kv_config_path=str(tmp_path / "folder" / "kv.json")) as namesrv:
        (tmp_path / "folder").write_text("in the way")
        code, remark, _, _ = await put(namesrv, "NS", "k", "v")
        assert code == 1
        assert (remark or "").endswith("; nothing was changed")
        assert (await get(namesrv, "NS", "k")).code == 22
