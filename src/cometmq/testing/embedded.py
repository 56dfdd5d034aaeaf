"""An embedded RocketMQ for tests: a name server and a broker on free ports, in the test's process.

    with EmbeddedBroker() as rocketmq:
        producer = Producer("tests", namesrv=rocketmq.namesrv)

    async with EmbeddedBroker(settings={"autoCreateTopicEnable": "false"}, brokers=2) as rocketmq:
        await rocketmq.create_topic("orders", queues=4)
        await rocketmq.brokers[1].stop_broker()

Rules kept here:
- It is ready when the `with` begins; when it ends, no port, thread or file is left.
- With `async with` it runs on the event loop of the test; with a plain `with` on its own, in a thread.
- Files are small, so that a start takes milliseconds. With a `folder` of the test, the folder stays, and its
  messages are there after a restart; a store that exists keeps its file sizes.
- Several brokers share the name server and the event loop of the first one.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from cometmq.broker.broker import Broker
from cometmq.broker.config import BrokerConfig
from cometmq.model.errors import SettingsError
from cometmq.model.settings import Layer, nearest, resolve
from cometmq.model.topic import TopicConfig
from cometmq.namesrv.config import NamesrvConfig
from cometmq.namesrv.service import Namesrv
from cometmq.ports.disk import SystemDisk
from cometmq.remoting.loop import loop_factory
from cometmq.remoting.server_settings import ServerSettings
from cometmq.store.config import StoreConfig
from cometmq.store.tools.survey import kept_sizes

T = TypeVar("T")

LOOPBACK: Final = "127.0.0.1"
SMALL: Final = {
    "bindAddress": LOOPBACK,
    "brokerIP1": LOOPBACK,
    "brokerIP2": LOOPBACK,
    "listenPort": "0",
    "brokerName": "embedded",
    "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
    "mappedFileSizeTimerLog": str(1024 * 1024),
    "mappedFileSizeConsumeQueue": str(1000 * 20),
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceCleanForciblyRatio": "85",
}
"""Settings that differ from a real broker."""


STRUCTS: Final = (BrokerConfig, StoreConfig, ServerSettings)


def _settings_of(struct: type[msgspec.Struct], values: Mapping[str, str]) -> Any:
    own = {key: value for key, value in values.items() if key in struct.__struct_encode_fields__}
    return resolve(struct, [Layer("settings", own)]).settings


class EmbeddedBroker:
    """A name server and a broker for tests; `settings` are RocketMQ's properties of a broker."""

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        namesrv: str | None = None,
        brokers: int = 1,
    ) -> None:
        """With `namesrv`, the address of running name servers, it starts none of its own."""
        if brokers < 1:
            raise SettingsError(f"brokers={brokers}: there has to be at least one")
        self._folder = None if folder is None else Path(folder)
        self._own_folder: Path | None = None
        self._given = dict(settings or {})
        self._outer_namesrv = namesrv
        self._namesrv: Namesrv | None = None
        self._broker: Broker | None = None
        self._namesrv_port = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._others: list[EmbeddedBroker] = []
        self._count = brokers

    # Where

    @property
    def namesrv(self) -> str:
        """The name server address for clients."""
        return self._outer_namesrv or f"{LOOPBACK}:{self._namesrv_port}"

    @property
    def broker(self) -> Broker:
        """The broker itself; use it only on its own event loop."""
        if self._broker is None:
            raise SettingsError("the embedded broker is not running; use it inside its with statement")
        return self._broker

    @property
    def brokers(self) -> list[EmbeddedBroker]:
        """This one, and the others that it started."""
        return [self, *self._others]

    @property
    def address(self) -> str:
        """The broker's own address."""
        return self.broker.address

    @property
    def folder(self) -> Path:
        """The store of the broker."""
        return self.broker.context.settings.store.root

    # On the event loop of the test

    async def start(self) -> None:
        root = self._folder or self._own_folder
        if root is None:
            root = self._own_folder = Path(tempfile.mkdtemp(prefix="cometmq-"))
        try:
            if self._outer_namesrv is None and self._namesrv is None:
                await self._start_namesrv(root)
            await self._start_broker(root)
            while len(self.brokers) < self._count:
                await self._start_other(root)
        except BaseException:
            await self.stop()
            raise

    async def _start_namesrv(self, root: Path) -> None:
        self._namesrv = Namesrv(
            NamesrvConfig(
                bind_address=LOOPBACK,
                listen_port=self._namesrv_port,
                kv_config_path=str(root / "namesrv" / "kvConfig.json"),
                config_store_path=str(root / "namesrv" / "namesrv.properties"),
            )
        )
        await self._namesrv.start()
        self._namesrv_port = self._namesrv.port

    async def _start_broker(self, root: Path) -> None:
        where = {"storePathRootDir": str(root / "store"), "namesrvAddr": self.namesrv, **self._given}
        sizes = await asyncio.to_thread(kept_sizes, SystemDisk(), where)
        values = {**SMALL, **sizes, **where}
        known = {key for struct in STRUCTS for key in struct.__struct_encode_fields__}
        for key in sorted(values.keys() - known):
            raise SettingsError(f"{key}: a broker has no such setting{nearest(key, known)}")
        broker = Broker(*(_settings_of(struct, values) for struct in STRUCTS))
        await broker.start()
        self._broker = broker
        self._given["listenPort"] = str(broker.port)  # the same after a restart

    async def _start_other(self, root: Path) -> None:
        name = f"{self._given.get('brokerName', SMALL['brokerName'])}-{len(self.brokers)}"
        settings = {**self._given, "brokerName": name, "listenPort": "0"}
        other = EmbeddedBroker(root / name, settings=settings, namesrv=self.namesrv)
        other._loop = self._loop
        await other.start()
        self._others.append(other)

    async def stop(self) -> None:
        """Stop in order, and remove the folder unless the test gave one."""
        while self._others:
            await self._others.pop().stop()
        await self.stop_broker()
        namesrv, self._namesrv = self._namesrv, None
        if namesrv is not None:
            await namesrv.stop()
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
            self._own_folder = None

    async def stop_broker(self) -> None:
        """Stop only the broker; `start` brings it back with its ports and messages."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()

    async def restart(self) -> None:
        """Stop the broker in order and start it again."""
        await self.stop_broker()
        await self.start()

    async def create_topic(self, topic: str, *, queues: int = 4, **settings: Any) -> None:
        """Create or change a topic on all brokers; `settings` are fields of `TopicConfig`."""
        config = TopicConfig(topic, queues, queues, attributes={})
        for each in self.brokers:
            context = each.broker.context
            context.topics.update(msgspec.structs.replace(config, **settings))
            await context.topic_file.saved()
            await context.registration.settled(3.0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # In a thread of its own

    def __enter__(self) -> Self:
        loop = self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="embedded-rocketmq", daemon=True)
        self._thread.start()
        try:
            self.call(self.start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call(self.stop())
        finally:
            self._end_thread()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the embedded broker: `rocketmq.call(rocketmq.restart())`."""
        if self._loop is None:
            work.close()
            raise SettingsError("call is for a broker that was started with a plain with statement")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _end_thread(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop = self._thread = None
