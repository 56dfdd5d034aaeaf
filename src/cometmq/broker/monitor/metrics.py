"""Prometheus metrics of a broker: messages in and out, clients, store, lag, transactions, timers and pops.

Rules kept here:
- Where RocketMQ's broker has a metric, it has its name as its exporter writes it, its labels and its ranges.
  Metrics of our own begin with `cometmq_`.
- A scrape runs on a thread of its own: it copies each table before it walks it, and changes nothing. Nothing
  is looked up in a way that belongs to the event loop.
- A group that is not online has a lag like any other. A queue in which a group has no offset does not count,
  as with RocketMQ. The age of the first message that a group lacks is read from the log, for at most
  `MOST_TIMED` queues a scrape; a group for which none was read has no latency, and is counted as left out.
- Totals of timers and of the revive topic are not by topic and group: every message would have to pay for
  that.
- There is no buffer of checkpoints, of which Apache has three metrics (`rocketmq_pop_offset_buffer_size`,
  `rocketmq_pop_checkpoint_buffer_size`, `rocketmq_pop_buffer_scan_time_consume`): a checkpoint is in the log
  before its messages are given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.broker.context import BrokerContext
from cometmq.broker.groups.offsets import ConsumerOffsets
from cometmq.broker.monitor.counters import FIFO, NORMAL, PLAIN
from cometmq.broker.topics.attributes import MESSAGE_TYPE
from cometmq.broker.topics.names import is_system_group
from cometmq.broker.topics.topics import Topics
from cometmq.model.histogram import Histogram
from cometmq.model.names import RETRY_PREFIX, TIMER_TOPIC
from cometmq.model.queue import lag_of
from cometmq.ports.clock import Clock
from cometmq.remoting.metrics.families import Families, Labels, Ranges, one, paced, ranges_of
from cometmq.store.message_store import MessageStore
from cometmq.store.tables.tables import TOPIC_GROUP_SEPARATOR
from cometmq.wire.bodies.heartbeat import ConsumeType
from cometmq.wire.codes import version_name

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from cometmq.broker.groups.online import Client
    from cometmq.store.queue.consume_queue import ConsumeQueue

_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
LOCAL_STORAGE: Final = {"storage_type": "local", "storage_medium": "disk"}
"""The labels of every store metric of RocketMQ."""
MOST_QUEUES: Final = 10_000
"""The most series of the lag by queue."""
MOST_TIMED: Final = 1_000
_FIRST_BYTES: Final = 512
"""The bytes fetched of a record, to read its store time."""
SNAPSHOT_BOUNDS_S: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""The spans in which messages that wait are counted, the same as RocketMQ's."""
MOST_SLOTS: Final = 100_000
"""The most slots of the wheel that are counted; further ones count as empty."""
_Samples = Iterable[tuple[Labels, float]]
"""The labels and the value of each."""


class TrafficMetrics:
    """Messages in and out, clients and the store."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def collect(self, families: Families) -> Iterator[Metric]:
        """Everything, as it is now."""
        yield from self._broker(families)
        yield from self._incoming(families)
        yield from self._outgoing(families)
        yield from self._clients(families)
        yield from self._store(families)
        yield from self._replication(families)

    def _broker(self, families: Families) -> Iterator[Metric]:
        context = self._context
        permission = context.settings.broker.broker_permission
        for name, what, value in (
            ("rocketmq_broker_permission", "4 is read, 2 is write.", permission),
            ("rocketmq_topic_number", "Topics.", len(context.topics.table)),
            ("rocketmq_consumer_group_number", "Consumer groups.", len(context.groups.table)),
        ):  # fmt: skip
            yield families.gauge(name, what, one(value))
        topics = [
            ({"invocation_status": outcome, "is_system": _text(is_system)}, ranges_of(times))
            for (outcome, is_system), times in list(context.traffic.topic_creations.times.items())
        ]
        groups = [
            ({"invocation_status": outcome}, ranges_of(times))
            for (outcome, _), times in list(context.traffic.group_creations.times.items())
        ]
        name = "rocketmq_topic_create_execution_time_milliseconds"
        yield families.histogram(name, "Time to make or change topics.", topics)
        name = "rocketmq_consumer_group_create_execution_time_milliseconds"
        yield families.histogram(name, "Time to make or change groups.", groups)

    def _incoming(self, families: Families) -> Iterator[Metric]:
        sizes: dict[tuple[str, str], Ranges] = {}
        for (topic, message_type), histogram in list(self._context.traffic.sizes.items()):
            key = (topic, message_type if message_type != PLAIN else self._message_type(topic))
            found, before = ranges_of(histogram), sizes.get(key)
            if before is not None:  # the topic became one of that type
                counts = [a + b for a, b in zip(found.counts, before.counts, strict=True)]
                found = Ranges(found.bounds, counts, found.total + before.total)
            sizes[key] = found
        labelled = [(self._topic_labels(*key), ranges) for key, ranges in sizes.items()]
        taken = [(labels, sum(ranges.counts)) for labels, ranges in labelled]
        totals = [(labels, ranges.total) for labels, ranges in labelled]
        yield families.counter("rocketmq_messages_in", "Messages taken.", taken)
        yield families.counter("rocketmq_throughput_in", "Bytes of the log that they take.", totals)
        yield families.histogram("rocketmq_message_size", "Bytes of the log a message.", labelled)
        dead = [
            (_group_labels(self._context.topics, topic, group), count)
            for (topic, group), count in list(self._context.traffic.dead_letters.items())
        ]
        yield families.counter("rocketmq_send_to_dlq_messages", "Messages that were given up.", dead)

    def _outgoing(self, families: Families) -> Iterator[Metric]:
        labelled = [
            (_consumer_labels(self._context.topics, topic, group), given)
            for (topic, group), given in self._context.traffic.delivered_by_group().items()
        ]
        messages = [(labels, given.messages) for labels, given in labelled]
        sizes = [(labels, given.size) for labels, given in labelled]
        yield families.counter("rocketmq_messages_out", "Messages given to consumers.", messages)
        yield families.counter("rocketmq_throughput_out", "Bytes given to consumers.", sizes)

    def _clients(self, families: Families) -> Iterator[Metric]:
        clients = self._context.clients
        producers: Counter[tuple[str, str]] = Counter()
        for members in list(clients.producers.values()):
            producers.update(_program(client) for client in list(members.values()))
        samples = [(_program_labels(program), count) for program, count in producers.items()]
        yield families.gauge("rocketmq_producer_connections", "Producers by language and version.", samples)
        consumers: Counter[tuple[str, str, tuple[str, str]]] = Counter()
        for group in list(clients.consumers.values()):
            mode = _MODES[group.consume_type]
            consumers.update((group.name, mode, _program(client)) for client in list(group.members.values()))
        samples = []
        for (name, mode, program), count in consumers.items():
            of_group = {"consumer_group": name, "is_system": _text(is_system_group(name))}
            samples.append(({**_program_labels(program), "consume_mode": mode, **of_group}, count))
        what = "Consumers by group, language and version."
        yield families.gauge("rocketmq_consumer_connections", what, samples)

    def _store(self, families: Families) -> Iterator[Metric]:
        context, store = self._context, self._context.store
        log, end, dispatched = store.log, store.log.max_offset, store.files.dispatcher.position
        earliest_ms = log.store_time(log.min_offset)
        for name, what, value in (
            ("rocketmq_storage_size_bytes", "Bytes of the log.", end - log.min_offset),
            ("rocketmq_storage_flush_behind_bytes", "Not synced yet.", end - store.flusher.flushed_offset),
            ("rocketmq_storage_dispatch_behind_bytes", "In no queue yet.", end - dispatched),
            (
                "rocketmq_storage_message_reserve_time_milliseconds", "Age of the first message.",
                0 if earliest_ms is None else context.clock.now_ms() - earliest_ms,
            ),
        ):  # fmt: skip
            yield families.gauge(name, what, [(LOCAL_STORAGE, max(value, 0))])
        for name, what, times in (
            ("append", "Time to put what came in one go into log and queues.", context.traffic.append_times),
            ("flush", "Time of a sync of the log.", store.flusher.sync_times),
        ):
            yield families.histogram(f"cometmq_{name}_latency_seconds", what, [({}, ranges_of(times))])
        skipped = store.skipped
        for name, what, count in (
            (
                "skipped_messages",
                "Queue offsets that led to no whole message of their own.",
                skipped.messages,
            ),
            ("lost_log_bytes", "Bytes of the commit log that are missing or no records.", skipped.log_bytes),
            ("misleading_index_entries", "Index entries that led to no whole record.", skipped.index_entries),
        ):
            yield families.counter(f"cometmq_{name}", what, one(count))
        troubles = [({"trouble": trouble.name or ""}, 1) for trouble in store.flags.troubles]
        what = "1 for what keeps the store from taking messages."
        yield families.gauge("cometmq_store_trouble", what, troubles)

    def _replication(self, families: Families) -> Iterator[Metric]:
        """The slaves of a master, or whether a slave follows."""
        server, client = self._context.ha_server, self._context.ha_client
        if server is not None:
            lags = [
                ({"replica": each.addr}, each.diff) for each in server.status() if each.slave_ack_offset >= 0
            ]
            yield families.gauge("cometmq_replica_lag_bytes", "Not acknowledged by a slave yet.", lags)
            what = "Copies of the log that are in sync, with the master's."
            yield families.gauge("cometmq_in_sync_replicas", what, one(server.in_sync))
        if client is not None:
            what = "1 while the log of the master is followed."
            yield families.gauge("cometmq_follows_master", what, one(int(client.is_following)))

    # Labels

    def _message_type(self, topic: str) -> str:
        config = self._context.topics.get(topic)
        declared = None if config is None else (config.attributes or {}).get(MESSAGE_TYPE)
        return FIFO if declared == "FIFO" else NORMAL

    def _topic_labels(self, topic: str, message_type: str) -> Labels:
        is_system = self._context.topics.is_system_topic(topic)
        return {"topic": topic, "message_type": message_type, "is_system": _text(is_system)}


def _group_labels(topics: Topics, topic: str, group: str) -> dict[str, str]:
    is_system = topics.is_system_topic(topic) or is_system_group(group)
    return {"topic": topic, "consumer_group": group, "is_system": _text(is_system)}


def _consumer_labels(topics: Topics, topic: str, group: str) -> Labels:
    return {**_group_labels(topics, topic, group), "is_retry": _text(topic.startswith(RETRY_PREFIX))}


def _text(value: bool) -> str:
    return "true" if value else "false"


def _program(client: Client) -> tuple[str, str]:
    version = version_name(client.version) if client.version >= 0 else str(client.version)
    return client.language.lower(), version.lower()


def _program_labels(program: tuple[str, str]) -> dict[str, str]:
    language, version = program
    return {"language": language, "version": version, "protocol_type": "remoting"}


class QueueLag(NamedTuple):
    """How far a group is in a queue."""

    queue_id: int
    end: int
    consumed: int
    pulled: int


_AMOUNTS: Final[Sequence[tuple[str, str, Callable[[QueueLag], int]]]] = (
    ("rocketmq_consumer_lag_messages", "Not consumed.", lambda lag: lag_of(lag.end, lag.consumed)),
    ("rocketmq_consumer_inflight_messages", "Pulled, not consumed.", lambda lag: lag.pulled - lag.consumed),
    ("rocketmq_consumer_ready_messages", "Not pulled.", lambda lag: lag.end - lag.pulled),
)


class GroupLag(NamedTuple):
    """How far a group is in a topic."""

    labels: Labels
    queues: list[QueueLag]
    since_ms: int | None
    """When the first message was stored that is not consumed; now if all are; None if that was not read."""
    ready_ms: int | None
    """When the first message was stored that is not pulled."""


class LagMetrics:
    """How far groups lag, by topic and by queue."""

    def __init__(self, clock: Clock, store: MessageStore, topics: Topics, offsets: ConsumerOffsets) -> None:
        self._clock = clock
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._timed = 0

    def collect(self, families: Families) -> Iterator[Metric]:
        """Everything, as it is now."""
        self._timed = 0
        now_ms = self._clock.now_ms()
        lags = list(self._lags(now_ms))
        for name, what, amount in _AMOUNTS:
            samples = ((each.labels, sum(map(amount, each.queues))) for each in lags)
            yield families.gauge(name, what, samples)
        for name, what, times in (
            ("rocketmq_consumer_lag_latency_milliseconds", "Age of the first message not consumed.",
             [(each.labels, each.since_ms) for each in lags]),
            ("rocketmq_consumer_queueing_latency_milliseconds", "Age of the first message not pulled.",
             [(each.labels, each.ready_ms) for each in lags]),
        ):  # fmt: skip
            known = [
                (labels, max(now_ms - since_ms, 0)) for labels, since_ms in times if since_ms is not None
            ]
            families.leave_out(name, len(times) - len(known))
            yield families.gauge(name, what, known)
        yield self._by_queue(families, lags)

    def _by_queue(self, families: Families, lags: list[GroupLag]) -> Metric:
        name = "cometmq_consumer_queue_lag_messages"
        samples: list[tuple[Labels, float]] = []
        left_out = 0
        for each in paced(lags):
            room = MOST_QUEUES - len(samples)
            left_out += max(len(each.queues) - room, 0)
            samples += [
                ({**each.labels, "queue_id": str(lag.queue_id)}, lag_of(lag.end, lag.consumed))
                for lag in each.queues[:room]
            ]
        families.leave_out(name, left_out)
        return families.gauge(name, "Messages not consumed, by queue.", samples)

    def _lags(self, now_ms: int) -> Iterator[GroupLag]:
        for key, offsets in paced(list(self._offsets.table.items())):
            topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
            queues = self._store.queues.by_topic.get(topic)
            if not separator or queues is None or self._topics.get(topic) is None:
                continue
            found: list[QueueLag] = []
            since_ms = ready_ms = now_ms
            is_timed = True
            for queue_id, consumed in sorted(dict(offsets).items()):
                queue = queues.get(queue_id)
                if queue is None or consumed < 0:
                    continue
                end = queue.max_offset
                consumed = min(consumed, end)
                pulled = min(max(self._offsets.query_pulled(group, topic, queue_id), consumed), end)
                found.append(QueueLag(queue_id, end, consumed, pulled))
                if consumed < end:
                    first_ms = self._stored_ms(queue, consumed)
                    is_timed = is_timed and first_ms is not None
                    since_ms = min(since_ms, now_ms if first_ms is None else first_ms)
                    if pulled != consumed:
                        first_ms = self._stored_ms(queue, pulled) if pulled < end else now_ms
                    ready_ms = min(ready_ms, now_ms if first_ms is None else first_ms)
            if not found:
                continue  # without an offset there is no lag, and not one of 0
            labels = _consumer_labels(self._topics, topic, group)
            yield GroupLag(labels, found, since_ms if is_timed else None, ready_ms if is_timed else None)

    def _stored_ms(self, queue: ConsumeQueue, offset: int) -> int | None:
        """When the message at an offset was stored; None if it is not there, or too many were asked for."""
        if self._timed >= MOST_TIMED:
            return None
        self._timed += 1
        try:
            unit = queue.unit(max(offset, queue.min_offset))
            if unit is None:
                return None
            log = self._store.log
            log.fetch([(unit[0], _FIRST_BYTES)])  # the disk is not waited for with the interpreter held
            return log.store_time(unit[0])
        except (OSError, ValueError, IndexError):  # its file is being deleted
            return None


class MessageTypeMetrics:
    """Transactions, timers and pops."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def collect(self, families: Families) -> Iterator[Metric]:
        """Everything, as it is now."""
        yield from self._transactions(families)
        yield from self._timers(families)
        yield from self._pops(families)
        yield families.counter(
            "cometmq_set_aside_records", "Records that a service could not process, ever.",
            [({"service": name}, count) for name, count in list(self._context.set_aside.totals.items())],
        )  # fmt: skip

    def _transactions(self, families: Families) -> Iterator[Metric]:
        transactions = self._context.transactions
        halves = {topic: metric.count for topic, metric in list(transactions.counts.counts.items())}
        yield families.gauge("rocketmq_half_messages", "Open transactions.", _by_topic(halves))
        ender, checker = transactions.ender, transactions.checker
        for name, what, samples in (
            ("rocketmq_commit_messages", "Transactions that succeeded.", _by_topic(ender.committed)),
            ("rocketmq_rollback_messages", "Transactions that did not.", _by_topic(ender.rolled_back)),
            ("cometmq_transaction_checks", "Half messages that were put again to be asked about.",
             one(checker.checked)),
            ("cometmq_given_up_transactions", "Half messages that nobody could say the end of.",
             one(checker.given_up)),
        ):  # fmt: skip
            yield families.counter(name, what, samples)
        name = "rocketmq_finish_message_latency_milliseconds"  # RocketMQ says so, too, and means seconds
        times = _times_by_topic(self._context.traffic.commit_times)
        yield families.histogram(name, "Age of transactions that succeeded.", times)

    def _timers(self, families: Families) -> Iterator[Metric]:
        timers = self._context.timers
        waiting = {topic: metric.count for topic, metric in list(timers.counts.counts.items())}
        lag = timers.enqueuer.lag if timers.runs else 0
        total, dequeue_ms = sum(waiting.values()), timers.read_behind_ms
        for name, what, samples in (
            ("timing_messages", "Messages that wait for their time.", _by_topic(waiting)),
            ("timer_enqueue_lag", "Messages that are not in the wheel yet.", one(lag)),
            ("timer_enqueue_latency_milliseconds", "How long the next of them has waited for that.",
             one(self._enqueue_latency_ms())),
            ("timer_message_snapshot", "Messages in the wheel, by the time until they are due.",
             self._snapshot(total)),
            ("timer_dequeue_lag", "Messages in the wheel.", one(total)),
            ("timer_dequeue_latency_milliseconds", "How late the next message is.", one(dequeue_ms)),
        ):  # fmt: skip
            yield families.gauge(f"rocketmq_{name}", what, _stored(samples))
        delays = [
            ({**LOCAL_STORAGE, **labels}, times)
            for labels, times in _times_by_topic(self._context.traffic.delays)
        ]
        what = "For how long messages were put aside."
        yield families.histogram("rocketmq_delay_message_latency_seconds", what, delays)
        taken, delivery = _stored(one(timers.enqueuer.taken)), timers.delivery
        yield families.counter("rocketmq_timer_enqueue", "Messages taken.", taken)
        delivered, cancelled = _stored(one(delivery.delivered)), one(delivery.cancelled)
        yield families.counter("rocketmq_timer_dequeue", "Messages delivered.", delivered)
        yield families.counter("cometmq_cancelled_timers", "Messages that were taken back.", cancelled)

    def _enqueue_latency_ms(self) -> int:
        timers, context = self._context.timers, self._context
        queue = context.store.queues.by_topic.get(TIMER_TOPIC, {}).get(0)
        if not timers.runs or queue is None:
            return 0
        try:
            unit = queue.unit(timers.enqueuer.queue_offset)
            stored_ms = None if unit is None else context.store.log.store_time(unit[0])
        except (OSError, ValueError, IndexError):  # its file is being deleted
            stored_ms = None
        return 0 if stored_ms is None else max(context.clock.now_ms() - stored_ms, 0)

    def _snapshot(self, waiting: int) -> Iterator[tuple[Labels, float]]:
        timers, context = self._context.timers, self._context
        slot_ms = context.settings.store.timer_slot_ms
        begin_ms = context.clock.now_ms() // slot_ms * slot_ms
        last_ms = min(timers.enqueuer.latest_ms, begin_ms + MOST_SLOTS * slot_ms) if waiting else -1
        start_ms = begin_ms
        for bound_s in SNAPSHOT_BOUNDS_S:
            end_ms = begin_ms + bound_s * 1000
            slots = range(start_ms, min(end_ms, last_ms + 1), slot_ms)
            yield {"timer_bound_s": str(bound_s)}, sum(timers.count_at(each) for each in paced(slots))
            start_ms = end_ms

    def _pops(self, families: Families) -> Iterator[Metric]:
        pop = self._context.pop
        written, read = pop.revive_topic, pop.reviver
        for name, what, samples in (
            ("in_message", "Records written for the revive topic.",
             _by_type(written.checkpoints, written.acks)),
            ("out_message", "Records read in the revive topic.", _by_type(read.checkpoints, read.acks)),
            ("retry_messages", "Messages that were brought back.", one(read.revived)),
        ):  # fmt: skip
            yield families.counter(f"rocketmq_pop_revive_{name}", what, samples)
        lags = [({"queue_id": str(queue.queue_id)}, *read.lag_of(queue)) for queue in list(read.queues)]
        lag = [(labels, records) for labels, records, _ in lags]
        late = [(labels, late_ms) for labels, _, late_ms in lags]
        name = "rocketmq_pop_revive_lag_milliseconds"  # Apache's broker says so, too, and means records
        yield families.gauge(name, "Records of the revive topic that are not done.", lag)
        name = "rocketmq_pop_revive_latency_milliseconds"
        yield families.gauge(name, "For how long the first checkpoint is overdue.", late)


def _stored(samples: _Samples) -> _Samples:
    """Samples with the labels of the store."""
    return [({**LOCAL_STORAGE, **labels}, value) for labels, value in samples]


def _by_topic(table: Mapping[str, int]) -> _Samples:
    return [({"topic": topic}, count) for topic, count in list(table.items())]


def _times_by_topic(table: Mapping[str, Histogram]) -> list[tuple[Labels, Ranges]]:
    return [({"topic": topic}, ranges_of(times)) for topic, times in list(table.items())]


def _by_type(checkpoints: int, acks: int) -> _Samples:
    return [({"revive_message_type": "CK"}, checkpoints), ({"revive_message_type": "ACK"}, acks)]
