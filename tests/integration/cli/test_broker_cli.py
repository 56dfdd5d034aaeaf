"""`cometmq broker` and `cometmq standalone` as processes (B1)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cometmq.remoting.client import RemotingClient
from cometmq.testing import EmbeddedBroker
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.namesrv import GetRouteInfoRequest
from tests.integration.broker.broker_kit import send_header

READY_S = 30.0
LEAN = ("rich", "cryptography", "prometheus_client", "urllib.request", "http.client")


class Process:
    """One command; its home folder is `home`."""

    def __init__(self, home: Path, *arguments: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("COMETMQ_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cometmq.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, "HOME": str(home)},
        )

    def ready_line(self) -> str:
        out = self.process.stdout
        assert out is not None
        readable, _, _ = select.select([out], [], [], READY_S)
        assert readable, f"nothing was said within {READY_S:g} s"
        line = out.readline().decode()
        assert line, self.process.communicate()[1].decode()
        return line

    def ready(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.ready_line())
        assert facts["event"] == "ready"
        return facts

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and standard error after a signal."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=READY_S)
        return self.process.returncode, err.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes: list[Process] = []

    def start_one(*arguments: str) -> Process:
        processes.append(Process(tmp_path, *arguments))
        return processes[-1]

    yield start_one
    for process in processes:
        process.kill()


FREE = ("--port", "0", "--bind", "127.0.0.1")


def test_a_broker_starts_in_three_visible_steps_and_stops_in_order(start: Start, tmp_path: Path) -> None:
    """B1: with Apache's words when it is ready."""
    process = start("broker", *FREE, "--set", "brokerName=b1", "--set", "brokerIP1=127.0.0.1")
    line = process.ready_line()
    assert line.startswith("The broker[b1, 127.0.0.1:")
    assert "boot success. serializeType=JSON" in line
    code, log = process.stop()
    assert code == 0
    for step in ("step 1 of 3, configuration", "step 2 of 3, build", "step 3 of 3, start", "stopped"):
        assert step in log
    assert not (tmp_path / "store" / "abort").exists()


def test_a_broker_reads_rocketmqs_own_file(start: Start, tmp_path: Path) -> None:
    """B1: keys of the broker and of the store in one; an unknown one is named with the nearest."""
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=from-file\nflushDiskTyp=SYNC_FLUSH\nstorePathRootDir=/tmp/x\n")
    process = start("broker", "-c", str(path), "-n", "127.0.0.1:9876", "-p", "--json")
    out, err = process.process.communicate(timeout=READY_S)
    shown = json.loads(out)
    assert shown["brokerName"] == {"value": "from-file", "origin": str(path)}
    assert shown["namesrvAddr"] == {"value": "127.0.0.1:9876", "origin": "flag"}
    assert shown["brokerConfigPath"]["value"] == str(path)
    assert shown["storePathRootDir"]["value"] == "/tmp/x"
    assert b"unknown key flushDiskTyp" in err
    assert b"did you mean flushDiskType?" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "haListenPort=x"], "haListenPort = 'x' (flag) is not a whole number from 0 to 65535"),
        (
            ["--set", "flushDiskTyp=SYNC_FLUSH"],
            "there is no setting flushDiskTyp (flag); did you mean flushDiskType",
        ),
        (["-c", "/nowhere.conf"], "the configuration file /nowhere.conf cannot be read"),
        (
            ["--set", "brokerRole=SLAVE"],
            "brokerRole = SLAVE is not supported: brokerId = 0 is that of the master",
        ),
    ],
)
def test_a_mistake_is_one_line_and_no_trace(start: Start, arguments: list[str], sentence: str) -> None:
    """B1."""
    process = start("broker", *FREE, *arguments)
    _, err = process.process.communicate(timeout=READY_S)
    assert process.process.returncode == 1
    assert sentence in err.decode()
    assert "Traceback" not in err.decode()


async def test_standalone_is_a_whole_system_in_one_process(start: Start, tmp_path: Path) -> None:
    """B1: ready in a moment, small when idle, and everything in one folder."""
    began = time.monotonic()
    process = start("standalone", "--data", str(tmp_path / "data"), *FREE, "--namesrv-port", "0", "--json")
    facts = process.ready()
    assert time.monotonic() - began < 15.0  # about half a second, on a machine that does nothing else
    client = RemotingClient()
    header = send_header("Orders", None)
    answer = await client.call(facts["brokers"][0], RequestCode.SEND_MESSAGE_V2, header, body=b"x")
    assert answer.code == 0
    route = await client.call(facts["namesrv"], 105, GetRouteInfoRequest(topic="broker-0"))
    assert facts["brokers"][0].encode() in bytes(route.body)
    await client.stop()
    assert psutil.Process(process.process.pid).memory_info().rss < 90 * 1024 * 1024
    assert process.stop(signal.SIGINT)[0] == 0
    assert (tmp_path / "data" / "broker-0" / "commitlog").is_dir()
    assert taken_bytes(tmp_path) < 100 * 1024 * 1024, "it is for trying things out"


def taken_bytes(folder: Path) -> int:
    return sum(each.stat().st_blocks * 512 for each in folder.rglob("*"))


@pytest.mark.parametrize(("chosen", "size_mib"), [(None, 64), ("--set", 3), ("store", 3)])
async def test_the_log_files_of_a_standalone_system_are_small(
    start: Start, tmp_path: Path, chosen: str | None, size_mib: int
) -> None:
    """B4: unless somebody chose a size, or the store has one."""
    size = str(size_mib * 1024 * 1024)
    arguments = ["standalone", "--data", str(tmp_path), *FREE, "--namesrv-port", "0", "--json"]
    if chosen == "--set":
        arguments += ["--set", f"mappedFileSizeCommitLog={size}"]
    elif chosen == "store":
        root = {"storePathRootDir": str(tmp_path / "broker-0"), "mappedFileSizeCommitLog": size}
        async with EmbeddedBroker(settings=root):
            pass
    process = start(*arguments)
    process.ready()
    (log_file, *_) = (tmp_path / "broker-0" / "commitlog").iterdir()
    assert log_file.stat().st_size == int(size)
    assert process.stop(signal.SIGINT)[0] == 0


async def test_several_brokers_stand_behind_one_name_server(start: Start, tmp_path: Path) -> None:
    """B1: each in a process of its own; all stop together."""
    process = start(
        *("standalone", "--brokers", "2", "--data", str(tmp_path / "data"), *FREE),
        *("--namesrv-port", "0", "--json"),
    )
    facts = process.ready()
    assert len(facts["brokers"]) == 2
    client = RemotingClient()
    answer = await client.call(facts["namesrv"], RequestCode.GET_BROKER_CLUSTER_INFO)
    for address in facts["brokers"]:
        assert address.encode() in bytes(answer.body)
    await client.stop()
    children = psutil.Process(process.process.pid).children()
    assert len(children) == 2
    assert process.stop()[0] == 0
    assert not any(child.is_running() for child in children)


@pytest.mark.parametrize("brokers", ["1", "2"])
async def test_standalone_keeps_settings_that_requests_changed(
    start: Start, tmp_path: Path, brokers: str
) -> None:
    """B13, N9: over a restart; a flag wins."""
    arguments = ("standalone", "--brokers", brokers, "--data", str(tmp_path / "data"), *FREE)
    client = RemotingClient()

    async def shown(facts: dict[str, Any]) -> str:
        bodies = [
            (await client.call(facts["brokers"][-1], RequestCode.GET_BROKER_CONFIG)).body,
            (await client.call(facts["namesrv"], RequestCode.GET_NAMESRV_CONFIG)).body,
        ]
        return "".join(str(body, "utf-8") for body in bodies)

    first = start(*arguments, "--namesrv-port", "0", "--json")
    facts = first.ready()
    change = b"fileReservedTime=48\nmaxMessageSize=4096\n"
    answer = await client.call(facts["brokers"][-1], RequestCode.UPDATE_BROKER_CONFIG, body=change)
    assert answer.code == 0
    change = b"orderMessageEnable=true\n"
    answer = await client.call(facts["namesrv"], RequestCode.UPDATE_NAMESRV_CONFIG, body=change)
    assert answer.code == 0
    assert first.stop()[0] == 0
    again = start(*arguments, "--namesrv-port", "0", "--json", "--set", "maxMessageSize=8192")
    text = await shown(again.ready())
    await client.stop()
    assert again.stop()[0] == 0
    for line in ("fileReservedTime=48", "maxMessageSize=8192", "orderMessageEnable=true"):
        assert f"{line}\n" in text


def test_when_one_of_several_brokers_dies_the_command_fails(start: Start, tmp_path: Path) -> None:
    """B1: half a cluster is none; the others are stopped in order."""
    process = start(
        *("standalone", "--brokers", "2", "--data", str(tmp_path / "data"), *FREE),
        *("--namesrv-port", "0", "--json"),
    )
    process.ready()
    children = psutil.Process(process.process.pid).children()
    children[0].kill()
    _, err = process.process.communicate(timeout=READY_S)
    assert process.process.returncode == 1
    assert "ended by itself with code -9" in err.decode()
    assert not any(child.is_running() for child in children)


def test_little_is_imported_for_a_broker() -> None:
    """B1: that is what makes it ready in a moment."""
    code = (
        "import sys, cometmq.cli.main\n"
        "from cometmq.broker.broker import Broker\n"
        f"print([name for name in {LEAN!r} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ended.stdout.strip() == "[]"
