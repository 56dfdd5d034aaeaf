"""What a broker says about its state, under the names that RocketMQ's tools show."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from cometmq._version import __version__
from cometmq.store.disk_space import used_percent
from cometmq.store.dispatch_rules import DELAY_TOPIC
from cometmq.wire.codes import CURRENT

if TYPE_CHECKING:
    from cometmq.broker.state import BrokerState

SAMPLE_S: Final = 1.0
_SPANS_S: Final = (10, 60, 600)
_DAY_MS: Final = 86_400_000


class Rates:
    """How many messages a second went in and out, over the last seconds and minutes."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=_SPANS_S[-1] + 1)
        self.day = 0
        self.put_total_yesterday = self.put_total_today = self.got_total_yesterday = self.got_total_today = 0

    def sample(self) -> None:
        """Note the counters; called once a second."""
        counters, now_ms = self._state.counters, self._state.clock.now_ms()
        self._samples.append((self._state.clock.monotonic_ms(), counters.put_messages, counters.got_messages))
        if now_ms // _DAY_MS != self.day:
            if self.day:
                self.put_total_yesterday = self.put_total_today
                self.got_total_yesterday = self.got_total_today
                self.put_total_today, self.got_total_today = counters.put_messages, counters.got_messages
            self.day = now_ms // _DAY_MS

    def put_tps(self) -> str:
        return self._per_second(1)

    def got_tps(self) -> str:
        return self._per_second(2)

    def _per_second(self, which: int) -> str:
        return " ".join(str(self._over(which, span)) for span in _SPANS_S)

    def _over(self, which: int, span_s: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        last = self._samples[-1]
        first = self._samples[max(len(self._samples) - 1 - span_s, 0)]
        elapsed_s = (last[0] - first[0]) / 1000
        return (last[which] - first[which]) / elapsed_s if elapsed_s else 0.0


def runtime_info(state: BrokerState, rates: Rates) -> dict[str, str]:
    """Names and values, all as text."""
    store, counters, config = state.store, state.counters, state.store_config
    now_ms = state.clock.now_ms()
    average = counters.put_bytes / counters.put_messages if counters.put_messages else 0.0
    logs = min(used_percent(state.disk.usage(folder)) for folder in config.writable_commit_log_folders)
    queues = used_percent(state.disk.usage(config.root))
    info = {
        "bootTimestamp": str(counters.started_ms),
        "runtime": _span(now_ms - counters.started_ms),
        "putMessageTimesTotal": str(counters.put_messages),
        "putMessageFailedTimes": str(counters.put_failures),
        "putMessageSizeTotal": str(counters.put_bytes),
        "putMessageAverageSize": str(average),
        "putMessageEntireTimeMax": "0",
        "getMessageEntireTimeMax": "0",
        "putMessageDistributeTime": "[<=0ms]:0",
        "dispatchMaxBuffer": "0",
        "putTps": rates.put_tps(),
        "getFoundTps": rates.got_tps(),
        "getMissTps": "0.0 0.0 0.0",
        "getTotalTps": rates.got_tps(),
        "getTransferredTps": rates.got_tps(),
        "commitLogDiskRatio": str(logs / 100),
        "consumeQueueDiskRatio": str(queues / 100),
        "commitLogMinOffset": str(store.log.min_offset),
        "commitLogMaxOffset": str(store.log.max_offset),
        "brokerActive": "true",
        "brokerVersionDesc": f"CometMQ_{__version__}",
        "brokerVersion": str(CURRENT),
        "msgPutTotalYesterdayMorning": str(rates.put_total_yesterday),
        "msgPutTotalTodayMorning": str(rates.put_total_today),
        "msgPutTotalTodayNow": str(counters.put_messages),
        "msgGetTotalYesterdayMorning": str(rates.got_total_yesterday),
        "msgGetTotalTodayMorning": str(rates.got_total_today),
        "msgGetTotalTodayNow": str(counters.got_messages),
        "dispatchBehindBytes": str(max(store.log.max_offset - store.files.dispatcher.position, 0)),
        "pageCacheLockTimeMills": "0",
        "earliestMessageTimeStamp": str(store.lookup.earliest()),
        "startAcceptSendRequestTimeStamp": str(state.config.start_accept_send_request_time_stamp),
        "timerReadBehind": str(state.timers.read_behind_ms // 1000),
        "timerOffsetBehind": str(state.timers.enqueuing.behind),
        "timerCongestNum": str(state.timers.counts.total),
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
        "remainTransientStoreBufferNumbs": "0",
        "remainHowManyDataToFlush": f"{store.log.max_offset - store.flusher.flushed_offset} B",
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": str(state.config.end_transaction_pool_queue_capacity),
    }
    for name in ("send", "pull", "litePull", "query", "ack"):
        info[f"{name}ThreadPoolQueueSize"] = info[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    for level, offset in state.delays.offsets.items():
        queue = store.queues.find(DELAY_TOPIC, level - 1)
        info[f"scheduleMessageOffset_{level}"] = f"{offset},{0 if queue is None else queue.max_offset}"
    return info


def _span(ms: int) -> str:
    seconds, minutes, hours = ms // 1000 % 60, ms // 60_000 % 60, ms // 3_600_000 % 24
    return f"[ {ms // _DAY_MS} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
