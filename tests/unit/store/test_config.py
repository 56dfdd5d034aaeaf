"""The settings of a store are Apache's, by name and by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from cometmq.model.errors import SettingsError
from cometmq.model.settings import Layer, as_texts, resolve
from cometmq.store.config import StoreConfig

DEFAULTS = Path(__file__).parents[2] / "data" / "store" / "store-config-defaults.properties"
ABSENT_IN_APACHE = {
    "storePathCommitLog",
    "readOnlyCommitLogStorePaths",
    "storePathEpochFile",
    "storePathBrokerIdentity",
    "storePathDLedgerCommitLog",
    "haMasterAddress",
    "dLegerGroup",
    "dLegerPeers",
    "dLegerSelfId",
    "preferredLeaderId",
}


def settings(**values: str) -> StoreConfig:
    return resolve(StoreConfig, [Layer("broker.conf", values)]).settings


OURS = {"haAllowedReplicas", "recoverWhatIsLeft"}


def test_every_key_and_default_is_that_of_apache_5_3_3() -> None:
    """B4"""
    lines = DEFAULTS.read_text("utf-8").splitlines()
    apache = dict(line.split("=", 1) for line in lines)
    # Apache's broker sets it to 0 before it reads its file, and takes the port behind its main port for 0.
    apache["haListenPort"] = "0"

    ours = as_texts(StoreConfig(store_path_root_dir="/home/user/store"))

    assert len(apache) == 172
    assert {ours.pop(key) for key in OURS} == {"", "false"}
    assert {key: value for key, value in ours.items() if key not in ABSENT_IN_APACHE} == apache
    assert {ours[key] for key in ABSENT_IN_APACHE} == {""}


def test_a_configuration_file_of_apache_is_taken_without_a_warning() -> None:
    values = dict(line.split("=", 1) for line in DEFAULTS.read_text("utf-8").splitlines())

    assert resolve(StoreConfig, [Layer("broker.conf", values)]).warnings == []


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("storeType", "defaultRocksDB", "one of default"),
        ("enableDLegerCommitLog", "true", "another format"),
        ("flushDiskType", "SOMETIMES", "one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("brokerRole", "MASTER", "one of ASYNC_MASTER, SLAVE, SYNC_MASTER"),
        ("mappedFileSizeCommitLog", "100", "from 1024 to"),
        ("maxMessageSize", "0", "from 1 to"),
        ("deleteWhen", "25", "hours of the day"),
        ("timerCheckMetricsWhen", "", "hours of the day"),
        ("messageDelayLevel", "1s 2x", "delays such as"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_key(key: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as caught:
        settings(**{key: value})
    assert key in caught.value.message


def test_several_hours_of_deletion_are_taken() -> None:
    """B5"""
    assert settings(deleteWhen="04;16").delete_when == "04;16"


def test_the_log_is_below_the_root_unless_it_has_folders_of_its_own() -> None:
    below = settings(storePathRootDir="/data/store")
    spread = settings(storePathCommitLog="/b/log, /a/log,/c/log", readOnlyCommitLogStorePaths="/a/log")

    assert below.commit_log_folders == below.writable_commit_log_folders == (Path("/data/store/commitlog"),)
    assert spread.commit_log_folders == (Path("/a/log"), Path("/b/log"), Path("/c/log"))
    assert spread.writable_commit_log_folders == (Path("/b/log"), Path("/c/log"))


def test_a_log_without_a_folder_that_may_be_written_is_refused() -> None:
    with pytest.raises(SettingsError, match="readOnlyCommitLogStorePaths"):
        settings(storePathCommitLog="/a", readOnlyCommitLogStorePaths="/a")


def test_queue_files_have_whole_units() -> None:
    assert settings(mappedFileSizeConsumeQueue="60001").consume_queue_file_size == 60020
    assert settings().consume_queue_file_size == 6_000_000


@pytest.mark.parametrize(("wanted", "in_force"), [("50", 100), ("199", 100), ("700", 500), ("5000", 1000)])
def test_the_precision_of_timers_is_the_next_smaller_one_possible(wanted: str, in_force: int) -> None:
    """B6"""
    assert settings(timerPrecisionMs=wanted).timer_slot_ms == in_force


def test_ratios_of_the_disk_are_kept_within_their_bounds() -> None:
    """B5"""
    low = settings(diskMaxUsedSpaceRatio="1", diskSpaceCleanForciblyRatio="1", diskSpaceWarningLevelRatio="1")
    high = settings(
        diskMaxUsedSpaceRatio="99", diskSpaceCleanForciblyRatio="99", diskSpaceWarningLevelRatio="99"
    )

    assert (low.delete_expired_above_percent, high.delete_expired_above_percent) == (10, 95)
    assert (low.delete_unexpired_above_percent, high.delete_unexpired_above_percent) == (30, 85)
    assert (low.refuse_writes_above_percent, high.refuse_writes_above_percent) == (35, 90)
