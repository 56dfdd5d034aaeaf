"""Settings that would promise what is not there are refused, whichever way they come (B1, N1)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.cli.servers.settings import variable_name
from cometmq.model.errors import SettingsError
from cometmq.model.settings import Layer, as_texts, resolve
from cometmq.namesrv.config import NamesrvConfig, NamesrvSettings
from cometmq.remoting.client import RemotingClient
from cometmq.remoting.server_settings import ServerSettings
from cometmq.store.config import StoreConfig
from cometmq.testing.embedded import EmbeddedBroker
from cometmq.wire.codes import RequestCode, ResponseCode
from tests.integration.broker.broker_kit import running_broker
from tests.integration.namesrv.namesrv_kit import running_namesrv

REFUSED = [
    ("brokerRole", "SLAVE"),
    ("brokerId", "1"),
    ("totalReplicas", "2"),
    ("inSyncReplicas", "2"),
    ("minInSyncReplicas", "2"),
    ("allAckInSyncStateSet", "true"),
    ("enableAutoInSyncReplicas", "true"),
    ("asyncLearner", "true"),
    ("duplicationEnable", "true"),
    ("aclEnable", "true"),
    ("tls.config.file", "/etc/rocketmq/tls.properties"),
    ("authenticationEnabled", "true"),
    ("authorizationEnabled", "true"),
    ("migrateAuthFromV1Enabled", "true"),
    ("enableControllerMode", "true"),
    ("enableDLegerCommitLog", "true"),
    ("rocksdbCQDoubleWriteEnable", "true"),
]
OUT_OF_RANGE = [
    ("storeType", "defaultRocksDB"),
    ("flushDiskType", "SYNCFLUSH"),
    ("fileReservedTime", "-1"),
    ("fileReservedTime", "three days"),
    ("diskMaxUsedSpaceRatio", "101"),
    ("diskSpaceWarningLevelRatio", "-1"),
    ("accessMessageInMemoryMaxRatio", "140"),
    ("popFromRetryProbability", "101"),
    ("mappedFileSizeCommitLog", "0"),
    ("maxMessageSize", "0"),
    ("listenPort", "65536"),
    ("listenPort", "2"),
    ("metricsPromExporterPort", "70000"),
    ("brokerHeartbeatInterval", "0"),
    ("brokerNotActiveTimeoutMillis", "0"),
    ("registerBrokerTimeoutMills", "0"),
    ("transactionCheckInterval", "0"),
    ("transactionCheckMax", "0"),
    ("transactionMetricFlushInterval", "0"),
    ("flushConsumerOffsetInterval", "0"),
    ("flushIntervalCommitLog", "0"),
    ("cleanResourceInterval", "0"),
    ("shortPollingTimeMills", "0"),
    ("channelExpiredTimeout", "0"),
    ("reviveQueueNum", "0"),
    ("sendThreadPoolQueueCapacity", "0"),
    ("brokerPermission", "16"),
    ("deleteWhen", "25"),
    ("haAllowedReplicas", "everybody"),
    ("messageDelayLevel", "soon"),
]
KINDS = (BrokerConfig, StoreConfig, ServerSettings)


@pytest.mark.parametrize(("key", "value"), REFUSED)
async def test_an_embedded_broker_refuses_it_with_what_to_do_instead(key: str, value: str) -> None:
    """B1: in the words `key = value is not supported: what would go wrong; what to do`."""
    said = re.escape(f"{key} = {value} is not supported: ") + ".+; .+"
    with pytest.raises(SettingsError, match=said):
        async with EmbeddedBroker(settings={key: value}):
            pass


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (
            {
                "tls.server.need.client.auth": "require",
                "tls.server.trustCertPath": "/ca",
                "tls.server.mode": "disabled",
            },
            "set the mode to enforcing",
        ),
        ({"tls.server.need.client.auth": "require"}, "needs tls.server.trustCertPath"),
        ({"tls.server.keyPath": "/key"}, "set tls.server.certPath, too"),
        ({"tls.test.mode.enable": "false"}, "set tls.server.certPath and tls.server.keyPath"),
        ({"tls.client.trustCertPath": "/ca"}, "set tls.enable = true"),
        ({"tls.client.authServer": "true"}, "set tls.enable = true"),
    ],
)
async def test_tls_that_would_protect_nothing_is_refused(settings: dict[str, str], advice: str) -> None:
    """R5: a setting that somebody relies on is in force, or the start fails."""
    with pytest.raises(SettingsError, match=advice):
        async with EmbeddedBroker(settings=settings):
            pass
    with pytest.raises(SettingsError, match=advice):
        resolve(NamesrvSettings, [Layer("-c", settings)]).settings.client_tls()


@pytest.mark.parametrize(("key", "value"), [*OUT_OF_RANGE, ("listenPort", "65535")])
async def test_a_value_that_makes_no_sense_is_refused_by_its_name(key: str, value: str) -> None:
    """B1: no interval of nothing, no port, size or ratio that cannot be."""
    with pytest.raises(SettingsError, match=re.escape(f"{key} = ")):
        async with EmbeddedBroker(settings={key: value}):
            pass


@pytest.mark.parametrize(("key", "value"), [*REFUSED, *OUT_OF_RANGE])
async def test_no_request_can_set_it_either(key: str, value: str, tmp_path: Path) -> None:
    """B1: UPDATE_BROKER_CONFIG is refused, and nothing is written to the file of the next start."""
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=b\n")
    async with running_broker(settings={"brokerConfigPath": str(path)}) as kit:
        context = kit.broker.context
        before = (context.settings.broker, context.settings.store)
        answer = await kit.client.call(
            kit.broker.address, RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}={value}\n".encode()
        )
        assert answer.code != ResponseCode.SUCCESS
        assert key in (answer.remark or "") or answer.code == ResponseCode.NO_PERMISSION
        assert (context.settings.broker, context.settings.store) == before
        assert path.read_text() == "brokerName=b\n"


@pytest.mark.parametrize("way", ["file", "variable", "flag", "print", "standalone", "several"])
def test_every_command_that_starts_a_broker_refuses_it(way: str, tmp_path: Path) -> None:
    """B1: one sentence, no trace, and nothing stays behind."""
    key, value = "inSyncReplicas", "2"
    environment = {**os.environ, "HOME": str(tmp_path)}
    free = ["--port", "0", "--bind", "127.0.0.1"]
    arguments = ["broker", *free]
    match way:
        case "file":
            (tmp_path / "broker.conf").write_text(f"{key}={value}\n")
            arguments += ["-c", str(tmp_path / "broker.conf")]
        case "variable":
            environment[variable_name(key)] = value
        case "flag":
            arguments += ["--set", f"{key}={value}"]
        case "print":
            arguments += ["--set", f"{key}={value}", "-p"]
        case _:
            arguments = ["standalone", *free, "--namesrv-port", "0", "--set", f"{key}={value}"]
            arguments += ["--brokers", "2"] if way == "several" else []
    command = [sys.executable, "-m", "cometmq.cli.main", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "inSyncReplicas = 2 is not supported: " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "boot success" not in ended.stdout


async def test_what_is_the_default_anyway_may_be_written_down() -> None:
    """B1: a file of Apache's broker has such lines."""
    fine = {
        "brokerRole": "ASYNC_MASTER",
        "brokerId": "0",
        "totalReplicas": "1",
        "inSyncReplicas": "1",
        "minInSyncReplicas": "1",
        "allAckInSyncStateSet": "false",
        "aclEnable": "false",
        "authenticationEnabled": "false",
        "authorizationEnabled": "false",
        "enableControllerMode": "false",
        "enableDLegerCommitLog": "false",
        "transientStorePoolEnable": "true",  # messages are safer without the pool
        "useTLS": "false",
        "tls.test.mode.enable": "true",
    }
    async with EmbeddedBroker(settings=fine) as embedded:
        assert embedded.broker.context.settings.broker.broker_id == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authenticationEnabled", "true"),
        ("authorizationEnabled", "true"),
        ("enableControllerInNamesrv", "true"),
    ],
)
async def test_a_name_server_refuses_what_it_cannot_do(key: str, value: str, tmp_path: Path) -> None:
    """N1: at its start, and by request."""
    kind = NamesrvConfig if key in NamesrvConfig.__struct_encode_fields__ else NamesrvSettings
    with pytest.raises(SettingsError, match=f"{key} = {value} is not supported: .+; .+"):
        resolve(kind, [Layer("-c", {key: value})])
    async with running_namesrv(tmp_path) as namesrv:
        client = RemotingClient()
        answer = await client.call(
            namesrv.address, RequestCode.UPDATE_NAMESRV_CONFIG, body=f"{key}={value}\n".encode()
        )
        await client.stop()
        assert answer.code != ResponseCode.SUCCESS
        assert key in (answer.remark or "")


def test_every_default_is_allowed() -> None:
    """B1: a file with all settings as they are printed can be read again."""
    for kind in (*KINDS, NamesrvConfig, NamesrvSettings):
        texts = as_texts(kind())
        assert as_texts(resolve(kind, [Layer("file", texts)]).settings) == texts
