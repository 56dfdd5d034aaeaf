"""The settings of a running name server: shown, changed, stored (N9)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cometmq.model.settings import Layer, resolve
from cometmq.namesrv.config import NamesrvConfig
from cometmq.testing import FailingFiles
from cometmq.wire.codes import RequestCode
from cometmq.wire.java_properties import parse_properties
from tests.answers import Told
from tests.integration.namesrv.namesrv_kit import OK, Visit, both_encodings, running_namesrv

APACHE_SETTINGS = [
    "bindAddress",
    "clientRequestThreadPoolNums",
    "clientRequestThreadPoolQueueCapacity",
    "clusterTest",
    "configBlackList",
    "configStorePath",
    "defaultThreadPoolNums",
    "defaultThreadPoolQueueCapacity",
    "deleteTopicWithBrokerRegistration",
    "enableAllTopicList",
    "enableControllerInNamesrv",
    "enableShutdownGracefully",
    "enableTopicList",
    "kvConfigPath",
    "listenPort",
    "needWaitForService",
    "notifyMinBrokerIdChanged",
    "orderMessageEnable",
    "productEnvName",
    "returnOrderTopicConfigToBroker",
    "rocketmqHome",
    "scanNotActiveBrokerInterval",
    "serverAsyncSemaphoreValue",
    "serverCallbackExecutorThreads",
    "serverChannelMaxIdleTimeSeconds",
    "serverNettyWorkerGroupEnable",
    "serverOnewaySemaphoreValue",
    "serverPooledByteBufAllocatorEnable",
    "serverSelectorThreads",
    "serverSocketBacklog",
    "serverSocketRcvBufSize",
    "serverSocketSndBufSize",
    "serverWorkerThreads",
    "shutdownWaitTimeSeconds",
    "supportActingMaster",
    "unRegisterBrokerQueueCapacity",
    "useEpollNativeSelector",
    "waitSecondsForService",
    "writeBufferHighWaterMark",
    "writeBufferLowWaterMark",
]
BLACK_LISTED = Told(16, "Can not update config in black list.", {}, b"")


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[Visit]:
    async with running_namesrv(tmp_path) as visit:
        yield visit


@both_encodings
async def test_the_settings_are_those_of_apaches_name_server(namesrv: Visit, encoding: int) -> None:
    """N9: the same keys, sorted, one a line."""
    answer = await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG, encoding=encoding)
    assert (answer.code, answer.remark) == (0, None)
    text = answer.body.decode()
    assert text.endswith("\n")
    assert [line.split("=")[0] for line in text.splitlines()] == APACHE_SETTINGS


@both_encodings
async def test_a_change_is_in_force_shown_and_stored(namesrv: Visit, tmp_path: Path, encoding: int) -> None:
    """N9: the stored text is the one that is shown, with the text before beside it."""
    changed = b"orderMessageEnable=true\n# a comment\nscanNotActiveBrokerInterval = 7000\n"
    code = RequestCode.UPDATE_NAMESRV_CONFIG
    answer = await namesrv.ask(code, body=changed, encoding=encoding)
    assert answer == Told(
        0,
        None,
        {
            "states": "orderMessageEnable=live;scanNotActiveBrokerInterval=live",
            "keptIn": str(tmp_path / "namesrv.properties"),
        },
        b"",
    )
    assert namesrv.server.state.config.order_message_enable is True
    assert await namesrv.setting("scanNotActiveBrokerInterval") == "7000"
    stored = tmp_path / "namesrv.properties"
    shown = (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body
    assert stored.read_bytes() == shown
    await namesrv.configure("orderMessageEnable=false")
    assert (tmp_path / "namesrv.properties.bak").read_bytes() == shown
    config = resolve(NamesrvConfig, [Layer("stored", parse_properties(stored.read_text()))]).settings
    assert config == namesrv.server.state.config, "the next start finds what is in force now"


async def test_keys_of_the_file_that_are_not_ours_to_change_stay_in_it(
    namesrv: Visit, tmp_path: Path
) -> None:
    """N9: TLS settings and foreign keys are in the same file."""
    stored = tmp_path / "namesrv.properties"
    stored.write_text("# a comment\ntls.server.mode = enforcing\nclusterTest=true\nforeign=1\n")
    assert (await namesrv.configure("orderMessageEnable=true")).code == 0
    values = parse_properties(stored.read_text())
    assert (values["tls.server.mode"], values["foreign"]) == ("enforcing", "1")
    assert (values["orderMessageEnable"], values["clusterTest"]) == ("true", "false")


@pytest.mark.parametrize("content", [b"a=\xff", b"a=\\u00zz"], ids=["not UTF-8", "broken escape"])
async def test_a_file_that_cannot_be_read_is_not_written_over(
    namesrv: Visit, tmp_path: Path, content: bytes
) -> None:
    """N9: what is in it may be somebody's only copy."""
    stored = tmp_path / "namesrv.properties"
    stored.write_bytes(content)
    code, remark, _, _ = await namesrv.configure("orderMessageEnable=true")
    assert code == 1
    assert (remark or "").endswith("; nothing was changed")
    assert stored.read_bytes() == content
    assert await namesrv.setting("orderMessageEnable") == "false"


@pytest.mark.parametrize(
    "text",
    [
        "kvConfigPath=/elsewhere",
        "configStorePath=/elsewhere",
        "rocketmqHome=/elsewhere",
        "configBlackList=",
        "orderMessageEnable=true\nkvConfigPath=/elsewhere",
        "kvConfigPath : /elsewhere",
    ],
)
async def test_some_settings_are_not_changed_by_request(namesrv: Visit, text: str, tmp_path: Path) -> None:
    """N9: and nothing beside them is."""
    assert await namesrv.configure(text) == BLACK_LISTED
    assert await namesrv.setting("kvConfigPath") == str(tmp_path / "kvConfig.json")
    assert await namesrv.setting("orderMessageEnable") == "false"
    assert not (tmp_path / "namesrv.properties").exists()


async def test_the_black_list_can_be_longer_but_not_shorter(tmp_path: Path) -> None:
    """N9: the keys that are always on it stay."""
    async with running_namesrv(tmp_path, config_black_list="listenPort; orderMessageEnable") as namesrv:
        for text in ("listenPort=1", "orderMessageEnable=true", "kvConfigPath=/x", "rocketmqHome=/x"):
            assert await namesrv.configure(text) == BLACK_LISTED
        assert (await namesrv.configure("clusterTest=false")).code == 0


async def test_a_malformed_body_is_refused(namesrv: Visit) -> None:
    """N9: recorded from Apache's name server."""
    malformed = Told(1, "string2Properties error", {}, b"")
    assert await namesrv.configure("orderMessageEnable=\\u00zz") == malformed
    code = RequestCode.UPDATE_NAMESRV_CONFIG
    assert await namesrv.ask(code, body=b"productEnvName=\xff") == malformed


async def test_nothing_to_change_is_a_success(namesrv: Visit, tmp_path: Path) -> None:
    """N9: no body, no equals sign, an unknown key."""
    assert await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG) == OK
    assert not (tmp_path / "namesrv.properties").exists()
    before = await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)
    assert await namesrv.configure("nothing here") == OK
    assert await namesrv.configure("noSuchKey=1") == OK
    assert await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG) == before


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("scanNotActiveBrokerInterval=abc", "a whole number from 1 to 2147483647"),
        ("scanNotActiveBrokerInterval=0", "a whole number from 1 to 2147483647"),
        ("orderMessageEnable=ja", "true or false"),
        ("supportActingMaster=true\nwaitSecondsForService=-1", "a whole number from 0 to 2147483647"),
    ],
)
async def test_a_wrong_value_is_refused_with_what_would_be_right(
    namesrv: Visit, text: str, wanted: str
) -> None:
    """N9: Apache's name server ignores it, or takes it for false; here nothing changes unnoticed."""
    code, remark, _, _ = await namesrv.configure(text)
    assert code == 29
    assert (remark or "").endswith(f"(request) is not {wanted}")
    assert await namesrv.setting("supportActingMaster") == "false"


async def test_a_value_cannot_smuggle_another_setting_into_the_file(namesrv: Visit, tmp_path: Path) -> None:
    """N9: the black list holds after a restart too."""
    code, remark, _, _ = await namesrv.configure("productEnvName=x\\nkvConfigPath=/elsewhere")
    assert code == 29
    assert (remark or "").startswith("productEnvName (request) is not one line")
    assert not (tmp_path / "namesrv.properties").exists()
    assert await namesrv.setting("productEnvName") == "center"


async def test_settings_that_cannot_be_stored_are_not_changed(tmp_path: Path) -> None:
    """N9: a full disk is an error with a reason."""
    files = FailingFiles()
    async with running_namesrv(tmp_path, files=files) as namesrv:
        files.fail_writes()
        answer = await namesrv.configure("orderMessageEnable=true")
        remark = "the settings could not be stored: No space left on device; nothing was changed"
        assert answer == Told(1, remark, {}, b"")
        assert await namesrv.setting("orderMessageEnable") == "false"


async def test_the_port_is_not_changed(namesrv: Visit) -> None:
    """N9: Apache's name server would listen on another one after its next start, and nobody would find it."""
    port = await namesrv.setting("listenPort")
    code, remark, _, _ = await namesrv.configure("listenPort=1")
    assert code == 16
    assert (remark or "").startswith("listenPort cannot be changed by request")
    assert await namesrv.setting("listenPort") == port
