"""The settings that RocketMQ 5.4 and 5.5 added to brokers, and what they mean here.

Everything else here follows RocketMQ 5.3. A key of this table is known: it has no effect, and a start says so
with the reason; a value that would keep messages where this broker does not look for them is refused.
"""

from __future__ import annotations

from typing import Final

from cometmq.model.errors import SettingsError

_BY_REASON: Final = {
    "there are no lite topics": """
        enableLiteEventMode enableLitePopLog liteEventCheckInterval liteEventFullDispatchDelayTime
        liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable liteLagLatencyCollectEnable
        liteLagLatencyMetricsEnable liteLagLatencyTopK liteSubscriptionCheckInterval
        liteSubscriptionCheckTimeoutMills liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount
        minLiteTTl enableLmqQuota
    """,
    "nothing is kept in RocksDB": """
        combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
        combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq
        indexRocksDBEnable iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays
        persistConsumerOffsetIncrementally timerRocksDBEnable timerRocksDBPrecisionMs
        timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
        timerRocksDBTimeExpiredMaxTps transRocksDBEnable transactionCheckRocksdbCoreThreads
        transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity
        transWriteOriginTransHalfEnable useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs
        timerRecallToTimelineEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
        timerReputServiceQueueCapacity appendTopicForTimerDeleteKey
    """,
    "messages have no priority": "popFromRetryProbabilityForPriority priorityOrderAsc useSeparateRetryQueue",
    "all metrics are there, each as often as it is read": """
        enableConnectionMetrics enableLagAndDlqMetrics enableMessageStoreMetrics enablePopMetrics
        enableRemotingMetrics enableRequestMetrics enableStatsMetrics enableTransactionMetrics
        metricsExportBatchMaxDataPoints
    """,
    "recovery begins at the check point and verifies what comes after it": """
        checkCommitLogOffsetOnRecover commitLogRecoverMaxNum enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRunningFlagsInFlush
    """,
    "the work that it shapes is done otherwise": """
        enableSplitMetadata splitMetadataSize indexFileReadEnable indexFileWriteEnable
        maxMessageFilterNumForNotification useMessageFilterForNotification popPollingMapExpireTimeSeconds
        popReviveConcurrency popReviveSkipIfGroupAbsent sharedByteBufferNum timerRecallToTimeWheelEnable
        timerWheelSnapshotFlush timerWheelSnapshotIntervalMs writeWithoutMmap
    """,
}
REASONS: Final = {key: reason for reason, keys in _BY_REASON.items() for key in keys.split()}
"""Why each key has no effect."""

REFUSED: Final = (
    "indexRocksDBEnable",
    "timerRocksDBEnable",
    "transRocksDBEnable",
    "useSingleRocksDBForAllConfigs",
)
"""Keys that are refused unless they are false."""


def no_effect(key: str, text: str, origin: str) -> str | None:
    """The remark on a key of this table; None for any other. A refused value raises `SettingsError`."""
    reason = REASONS.get(key)
    if reason is None:
        return None
    if key in REFUSED and text.strip().lower() != "false":
        raise SettingsError(
            f"{key} = {text} ({origin}) is not supported: what a broker keeps in RocksDB would be missing; "
            "leave it out, or set it to false"
        )
    return f"{key} ({origin}) of RocketMQ 5.5 has no effect: {reason}"
