"""`brokerStatus`: the runtime info of a broker, under RocketMQ's names.

Rules kept here:
- What does not exist here says so in RocketMQ's way: pulls, queries and acknowledgements have no queues, so
  nothing waits in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq._version import __version__
from cometmq.model.names import DELAY_TOPIC
from cometmq.ports.disk import used_percent
from cometmq.wire.codes import CURRENT

if TYPE_CHECKING:
    from cometmq.broker.context import BrokerContext

_DAY_MS: Final = 86_400_000
_UNITS: Final = "KMGTPE"
_NO_POOL: Final = str(2**31 - 1)
"""How many buffers are left of a pool that is not used."""


def runtime_info(context: BrokerContext) -> dict[str, str]:
    """Names and values, all as text."""
    counters, times, rates = context.traffic, context.traffic.put_times, context.rates
    average = counters.put_bytes / counters.put_messages if counters.put_messages else 0.0
    return {
        "bootTimestamp": str(context.started_ms),
        "runtime": _span(context.clock.now_ms() - context.started_ms),
        "putMessageTimesTotal": str(counters.put_messages),
        "putMessageFailedTimes": str(counters.put_failures),
        "putMessageSizeTotal": str(counters.put_bytes),
        "putMessageAverageSize": str(average),
        "putMessageEntireTimeMax": str(int(times.longest_s * 1000)),
        "getMessageEntireTimeMax": str(int(context.traffic.longest_get_s * 1000)),
        "putMessageDistributeTime": times.by_range(),
        "putLatency99": f"{times.quantile_ms(0.99):.2f}",
        "putLatency999": f"{times.quantile_ms(0.999):.2f}",
        "dispatchMaxBuffer": "0",  # nothing waits between the log and the queues
        **rates.texts(),
        "brokerActive": "true",
        "brokerVersionDesc": f"CometMQ_{__version__}",
        "brokerVersion": str(CURRENT),
        "msgPutTotalYesterdayMorning": str(rates.put_total_yesterday),
        "msgPutTotalTodayMorning": str(rates.put_total_today),
        "msgPutTotalTodayNow": str(counters.put_messages),
        "msgGetTotalYesterdayMorning": str(rates.got_total_yesterday),
        "msgGetTotalTodayMorning": str(rates.got_total_today),
        "msgGetTotalTodayNow": str(counters.got_messages),
        "pageCacheLockTimeMills": "0",  # nobody puts while this is written
        "startAcceptSendRequestTimeStamp": str(context.settings.broker.start_accept_send_request_time_stamp),
        "timerReadBehind": str(context.timers.read_behind_ms // 1000),
        "timerOffsetBehind": str(context.timers.enqueuer.lag),
        "timerCongestNum": str(context.timers.counts.total),
        **_about_store(context),
        **_about_queues(context),
        **({"storeTrouble": context.store.trouble} if context.store.trouble else {}),
        **({"setAsideRecords": str(context.set_aside.since_start)} if context.set_aside.since_start else {}),
    }


def _about_store(context: BrokerContext) -> dict[str, str]:
    store, config, usage = context.store, context.settings.store, context.disk.usage
    ratios = {folder: used_percent(usage(folder)) / 100 for folder in config.writable_commit_log_folders}
    info = {f"commitLogDiskRatio_{folder}": str(ratio) for folder, ratio in ratios.items()}
    space = usage(config.root)
    if space is not None:
        total, free = _readable(space.total), _readable(space.total - space.used)
        info["commitLogDirCapacity"] = f"Total : {total}, Free : {free}."
    info |= {
        "commitLogDiskRatio": str(min(ratios.values())),
        "consumeQueueDiskRatio": str(used_percent(usage(config.root)) / 100),
        "commitLogMinOffset": str(store.log.min_offset),
        "commitLogMaxOffset": str(store.log.max_offset),
        "dispatchBehindBytes": str(max(store.log.max_offset - store.files.dispatcher.position, 0)),
        "earliestMessageTimeStamp": str(store.lookup.earliest()),
        "remainTransientStoreBufferNumbs": _NO_POOL,
        "remainHowManyDataToFlush": _readable(store.log.max_offset - store.flusher.flushed_offset),
    }
    for level, offset in context.delays.offsets.items():
        _, end = store.queues.bounds(DELAY_TOPIC, level - 1)
        info[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return info


def _about_queues(context: BrokerContext) -> dict[str, str]:
    """The queues of the thread pools. Only sends wait here, for the disk: what is not read yet waits in its
    connection, and what is read is done at once."""
    config = context.settings.broker
    info = {
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_pool_queue_capacity),
    }
    for name, capacity in (
        ("send", config.send_thread_pool_queue_capacity),
        ("pull", config.pull_thread_pool_queue_capacity),
        ("litePull", config.lite_pull_thread_pool_queue_capacity),
        ("query", config.query_thread_pool_queue_capacity),
        ("ack", config.ack_thread_pool_queue_capacity),
    ):
        info[f"{name}ThreadPoolQueueSize"] = info[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        info[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
    info["sendThreadPoolQueueSize"] = str(context.sender.pressure.waiting)
    info["sendThreadPoolQueueHeadWaitTimeMills"] = str(int(context.store.flusher.longest_wait_s * 1000))
    return info


def _readable(count: int) -> str:
    """A number of bytes for people, in powers of 1024."""
    if count < 1024:
        return f"{count} B"
    amount, unit = count / 1024, 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount /= 1024
        unit += 1
    return f"{amount:.1f} {_UNITS[unit]}iB"


def _span(ms: int) -> str:
    seconds, minutes, hours = ms // 1000 % 60, ms // 60_000 % 60, ms // 3_600_000 % 24
    return f"[ {ms // _DAY_MS} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
