"""Headers of the settings, statistics and upkeep of a broker, and of a container of brokers.

25, 28, 305, 306, 316, 328, 329 and 2001 to 2003 have no header: they need nothing, or say it in their body.
"""

from __future__ import annotations

from msgspec import field

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, Int32, Int64, request_header, response_header


@response_header(RequestCode.GET_BROKER_CONFIG)
class GetBrokerConfigResponse(Header, kw_only=True):
    """The data version of the settings in the body, as JSON text."""

    version: str


@request_header(RequestCode.VIEW_BROKER_STATS_DATA)
class ViewBrokerStatsDataRequest(Header, kw_only=True):
    """Ask for one counter of a broker over a minute, an hour and a day."""

    stats_name: str
    stats_key: str


@request_header(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS)
class CheckRocksdbCqWriteProgressRequest(Header, kw_only=True):
    """Compare the consume queues in RocksDB with those in files."""

    topic: str
    check_store_time: Int64 = 0


@request_header(RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)
class ExportRocksDBConfigToJsonRequest(Header, kw_only=True):
    """Write tables that are in RocksDB to JSON files."""

    config_type: str
    """`topics`, `subscriptionGroups` and `consumerOffsets`, each followed by a semicolon."""


@request_header(RequestCode.SET_COMMITLOG_READ_MODE)
class SetCommitLogReadModeRequest(Header, kw_only=True):
    """Choose how the operating system reads the commit log ahead; Java sends a plain key."""

    read_ahead_mode: Int32 | None = field(name="READ_AHEAD_MODE", default=None)
    """0 is normal, 1 is random."""


@request_header(RequestCode.ADD_BROKER)
class AddBrokerRequest(Header, kw_only=True):
    """Start a broker in a container."""

    config_path: str | None = None


@request_header(RequestCode.REMOVE_BROKER)
class RemoveBrokerRequest(Header, kw_only=True):
    """Stop a broker of a container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64
