"""A run against real servers: fill them, attack them, and look at everything that has to hold afterwards."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cometmq.remoting.client import RemotingClient
from cometmq.wire.codes import RequestCode
from cometmq.wire.headers.send import SendMessageRequestV2
from cometmq.wire.record.properties import format_properties
from tests.fuzz.attack import Attack
from tests.fuzz.good_clients import check_service
from tests.fuzz.plausible import TOPICS, Plausible
from tests.fuzz.requests import BROKER_CODES, NAMESRV_CODES, Code, RequestGenerator
from tests.fuzz.server_process import START_S, ServerProcess, Servers, running_servers
from tests.fuzz.settings import SEED
from tests.fuzz.watch import (
    MAX_DESCRIPTORS,
    MAX_GROWTH_BYTES,
    Findings,
    FolderWatch,
    Pinger,
    check_log,
    patience,
)

FILLED = 10
"""How many messages each queue of the first topics has before anything odd comes."""


class Run:
    """Two servers under attack, and what was found."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.findings = Findings()
        self.requests = 0
        self.plausible = Plausible(time.time_ns() // 1_000_000, [])
        self._folders = FolderWatch(
            servers.root,
            [servers.store, servers.root / "broker.log", servers.root / "namesrv.log", *servers.own_files],
        )
        self._memory: dict[ServerProcess, int] = {}
        self.report: list[str] = []

    async def begin(self) -> None:
        self._folders.begin(self.servers.store)
        self.plausible = Plausible(time.time_ns() // 1_000_000, await self._fill())

    async def _fill(self) -> list[str]:
        """Send some good messages; their ids."""
        ids, client = [], RemotingClient()
        address = f"127.0.0.1:{self.servers.broker.port}"
        for number in range(4 * FILLED):
            properties = {
                "TAGS": "TagA",
                "KEYS": f"k{number % 3}",
                "UNIQ_KEY": f"{number:032X}",
                "a": str(number),
            }
            header = SendMessageRequestV2(
                producer_group="fuzz-shop", topic=TOPICS[number % 2], default_topic="TBW102",
                default_topic_queue_nums=4, queue_id=number % 4, sys_flag=0, born_timestamp=0, flag=0,
                properties=format_properties(properties),
            )  # fmt: skip
            answer = await client.call(
                address, RequestCode.SEND_MESSAGE_V2, header, body=b"filled", timeout_s=20
            )
            assert answer.code == 0, answer
            ids.append(answer.fields()["msgId"] or "")
        await client.stop()
        return ids

    async def attack(self, server: ServerProcess, codes: list[Code], first: int, count: int) -> Attack:
        """Attack a server with the requests of these numbers while somebody else asks it, too."""
        outside = str(self.servers.beside)
        generator = RequestGenerator(SEED, codes, self.plausible, outside)
        attack = Attack(server.port, generator.request, self.findings)
        pinger = Pinger(server.port, lambda: f"{server.log.stem}, at about request {attack.position}")
        pinger.start()
        began = time.monotonic()
        warm = count // 10
        await attack.run(first, warm)
        self._memory.setdefault(server, server.anonymous_bytes())
        await attack.run(first + warm, count - warm)
        seconds = time.monotonic() - began
        pinger.finish(self.findings)
        self.requests += count
        longest_ms = pinger.longest_s * 1000
        self.report.append(
            f"{count} requests to the {server.log.stem} in {seconds:.1f} s ({count / seconds:.0f}/s); "
            f"another connection was answered {pinger.count} times, the slowest in {longest_ms:.0f} ms"
        )
        return attack

    async def attack_broker(self, first: int, count: int) -> Attack:
        return await self.attack(self.servers.broker, BROKER_CODES, first, count)

    async def attack_namesrv(self, first: int, count: int) -> Attack:
        return await self.attack(self.servers.namesrv, NAMESRV_CODES, first, count)

    async def check_service(self, name: str) -> None:
        await check_service(self.findings, self.servers.namesrv_address, name)

    def check_resources(self, server: ServerProcess) -> None:
        grown = server.anonymous_bytes() - self._memory.get(server, server.anonymous_bytes())
        if grown > MAX_GROWTH_BYTES:
            self.findings.add(
                "memory that grows", f"{server.log.stem}: {grown} bytes more than after a tenth"
            )
        if server.descriptors() > MAX_DESCRIPTORS:
            self.findings.add("too many descriptors", f"{server.log.stem}: {server.descriptors()}")
        self.report.append(
            f"{server.log.stem}: {grown / 2**20:.0f} MiB grown, {server.descriptors()} descriptors"
        )

    async def stop(self, server: ServerProcess, *attacks: Attack) -> None:
        """Stop a server in order: it answers what is open, and ends with 0."""
        server.ask_to_stop()
        for attack in attacks:
            await attack.wait_for_the_end()
        code = await asyncio.to_thread(server.wait)
        if code != 0:
            self.findings.add("an orderly stop that failed", f"{server.log.stem} ended with {code}")

    async def start_again(self, server: ServerProcess) -> None:
        """Start it on what it left behind, which has to be quick."""
        await asyncio.to_thread(server.start)
        self.report.append(f"{server.log.stem} started again in {server.start_s:.1f} s")
        if server.start_s > START_S * patience():
            self.findings.add("a slow start", self.report[-1])

    async def finish(self) -> None:
        """After both have stopped: their files and their logs."""
        self._folders.finish(self.findings, self.servers.store)
        for server in self.servers.both:
            lines = check_log(self.findings, server.log, self.requests)
            self.report.append(f"{server.log.stem}: {lines} lines in the log")
        await asyncio.to_thread(self._verify)
        print("\n".join(self.report))
        assert not self.findings, f"seed {SEED} (repeat with FUZZ_SEED={SEED}):\n{self.findings}"

    def _verify(self) -> None:
        command = [
            sys.executable,
            "-m",
            "cometmq.cli.main",
            "store",
            "verify",
            str(self.servers.store),
            "--json",
        ]
        done = subprocess.run(
            [*command, "-c", str(self.servers.broker_conf)], capture_output=True, timeout=300, check=False
        )
        try:
            found = json.loads(done.stdout)["findings"]
        except (ValueError, KeyError):
            self.findings.add("a store that does not verify", (done.stdout + done.stderr).decode()[-3000:])
            return
        for each in found:
            if not _is_of_deleted_topic(each):
                self.findings.add("a store that does not verify", each)


def _is_of_deleted_topic(finding: dict[str, Any]) -> bool:
    """Whether messages are in no queue because their topic was deleted, and made again since.

    Nothing on the disk tells that from a queue that was lost; requests delete such topics all the time.
    """
    topic = Path(finding["file"]).parent.parent.name
    return not topic.startswith("canary") and finding["found"] == "the end of the queue"


@asynccontextmanager
async def fuzz_run(root: Path) -> AsyncIterator[Run]:
    """A run that begins with good messages in the store; its servers are gone at the end."""
    with running_servers(root) as servers:
        run = Run(servers)
        await run.begin()
        yield run
