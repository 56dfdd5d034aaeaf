"""Start checks: settings and stores that a broker refuses, before anything is touched.

Rules kept here:
- A store that this broker cannot serve whole is refused at the start, with the topic or folder that is the
  reason and with what to do about it. Nothing in it is changed. Settings say themselves what they refuse;
  here is what only a broker refuses, at its start and when a request changes its settings.
- What lies there unused is not asked about: an empty folder, or the attributes of a topic that say what is
  usual anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cometmq.broker.config import BrokerConfig
from cometmq.broker.ports import FAST_PORT_DISTANCE
from cometmq.broker.topics.attributes import UNSUPPORTED
from cometmq.model.errors import SettingsError, StoreError
from cometmq.model.settings import refuse_unsupported
from cometmq.ports.disk import Disk
from cometmq.store.config import NO_REPLICATION, StoreConfig
from cometmq.store.tables.files import CONFIG_FOLDER, ConfigFile
from cometmq.store.tables.tables import TopicTable
from cometmq.store.tools.survey import BATCH_QUEUE_FOLDER, QUEUE_FOLDER

_LAST_PORT: Final = 65_535
_MOST_NAMED: Final = 5
_DLEDGER_PREFIX: Final = "dledger-"
_ROCKSDB_FILE: Final = "CURRENT"
"""Every database of RocksDB has this file."""
_PLAIN_STORES: Final = "only stores of plain files are read"


def refuse_settings(config: BrokerConfig, store_config: StoreConfig) -> None:
    """Raise `SettingsError` if settings that are fine each by itself are not fine for a broker."""
    refuse_unsupported(store_config, NO_REPLICATION)
    _refuse_roles(config, store_config)
    if 0 < config.listen_port <= FAST_PORT_DISTANCE:
        raise SettingsError(
            f"listenPort = {config.listen_port} leaves no port for the fast one, which is "
            f"{FAST_PORT_DISTANCE} below it; choose a larger one"
        )
    if config.listen_port == _LAST_PORT and not store_config.ha_listen_port:
        raise SettingsError(
            f"listenPort = {_LAST_PORT} leaves no port after it for replicas; choose a smaller one, or set "
            "haListenPort"
        )


def _refuse_roles(config: BrokerConfig, store_config: StoreConfig) -> None:
    """Refuse ids and numbers of copies that do not go with the role."""
    role = store_config.broker_role
    if role == "SLAVE":
        if config.broker_id == 0:
            raise SettingsError(
                "brokerRole = SLAVE is not supported: brokerId = 0 is that of the master; give each slave of "
                "a brokerName a brokerId of its own, from 1 on"
            )
        if config.enable_slave_acting_master:
            raise SettingsError(
                "enableSlaveActingMaster = true is not supported: a slave cannot act as the master yet; set "
                "it to false"
            )
        return
    if config.broker_id != 0:
        raise SettingsError(
            f"brokerId = {config.broker_id} is not supported: other ids than 0 are those of slaves; set "
            "brokerRole = SLAVE, or leave brokerId out and give each broker a brokerName of its own"
        )
    if role == "ASYNC_MASTER":
        for key, value, usual in (
            ("inSyncReplicas", store_config.in_sync_replicas, 1),
            ("minInSyncReplicas", store_config.min_in_sync_replicas, 1),
            ("enableAutoInSyncReplicas", store_config.enable_auto_in_sync_replicas, False),
        ):
            if value != usual:
                raise SettingsError(
                    f"{key} = {str(value).lower()} is not supported: with brokerRole = ASYNC_MASTER no send "
                    f"waits for a replica; set brokerRole = SYNC_MASTER, or {key} = {str(usual).lower()}"
                )


def refuse_store(disk: Disk, config: StoreConfig) -> None:
    """Raise `StoreError` if the directory of a store has what would be misread; blocks."""
    for reason in _reasons(disk, config.root):
        raise StoreError(f"{config.root} cannot be served by this broker: {reason}")


def _reasons(disk: Disk, root: Path) -> Iterator[str]:
    for name in _databases(disk, root):
        yield f"{name} is a RocksDB database, and {_PLAIN_STORES}; let Apache's broker serve it"
    for entry in disk.entries(root):
        if entry.is_folder and entry.name.startswith(_DLEDGER_PREFIX):
            yield (
                f"{entry.name} is the log of a DLedger group, and {_PLAIN_STORES}; let Apache's broker serve "
                "it, or move that folder away if its messages are not needed"
            )
    batch_topics = [entry.name for entry in disk.entries(root / BATCH_QUEUE_FOLDER) if entry.is_folder]
    if batch_topics:
        yield _of_topics(batch_topics, f"batch consume queues, in {BATCH_QUEUE_FOLDER}")
    table = ConfigFile(disk, root / CONFIG_FOLDER, TopicTable).load(repair=False)
    topics = {} if table is None else table.topic_config_table
    for key, value in UNSUPPORTED:
        found = [name for name, topic in topics.items() if (topic.attributes or {}).get(key) == value]
        if found:
            yield _of_topics(found, f"{key} = {value}")


def _databases(disk: Disk, root: Path) -> Iterator[str]:
    config = root / CONFIG_FOLDER
    folders = [config / entry.name for entry in disk.entries(config) if entry.is_folder]
    for folder in (root / QUEUE_FOLDER, *folders):
        if any(entry.name == _ROCKSDB_FILE and not entry.is_folder for entry in disk.entries(folder)):
            yield str(folder.relative_to(root))


def _of_topics(names: list[str], what: str) -> str:
    shown = ", ".join(sorted(names)[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return (
        f"it has topics with {what}: {shown}; consume them to their end with Apache's broker and delete them "
        "there, or let it serve this store"
    )
