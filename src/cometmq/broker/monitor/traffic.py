"""Prometheus metrics of messages in and out, connected clients and the store.

Rules kept here:
- Names, labels and ranges are those of RocketMQ's broker. What only we have begins with `cometmq_`.
- Everything runs on the thread of a scrape: it copies each table before it walks it, and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from cometmq.broker.monitor.counters import FIFO, NORMAL, PLAIN
from cometmq.broker.topics.attributes import MESSAGE_TYPE
from cometmq.broker.topics.names import RETRY_PREFIX, is_system_group
from cometmq.remoting.families import Families, Labels, Ranges, one, ranges_of
from cometmq.wire.bodies.heartbeat import ConsumeType
from cometmq.wire.codes import version_name

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from cometmq.broker.context import BrokerContext
    from cometmq.broker.groups.online import Client

_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
LOCAL_STORAGE: Final = {"storage_type": "local", "storage_medium": "disk"}
"""The labels of every store metric of RocketMQ."""


class TrafficMetrics:
    """The metrics of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def collect(self, families: Families) -> Iterator[Metric]:
        """Everything, as it is now."""
        yield from self._broker(families)
        yield from self._incoming(families)
        yield from self._outgoing(families)
        yield from self._clients(families)
        yield from self._store(families)

    def _broker(self, families: Families) -> Iterator[Metric]:
        context = self._context
        permission = context.settings.broker.broker_permission
        for name, what, value in (
            ("rocketmq_broker_permission", "4 is read, 2 is write.", permission),
            ("rocketmq_topic_number", "Topics.", len(context.topics.table)),
            ("rocketmq_consumer_group_number", "Consumer groups.", len(context.groups.table)),
        ):  # fmt: skip
            yield families.gauge(name, what, one(value))
        yield families.histogram(
            "rocketmq_topic_create_execution_time_milliseconds", "Time to make or change topics.",
            (
                ({"invocation_status": ending, "is_system": _text(is_system)}, ranges_of(times))
                for (ending, is_system), times in list(context.traffic.topic_creations.times.items())
            ),
        )  # fmt: skip
        yield families.histogram(
            "rocketmq_consumer_group_create_execution_time_milliseconds", "Time to make or change groups.",
            (
                ({"invocation_status": ending}, ranges_of(times))
                for (ending, _), times in list(context.traffic.group_creations.times.items())
            ),
        )  # fmt: skip

    def _incoming(self, families: Families) -> Iterator[Metric]:
        sizes: dict[tuple[str, str], Ranges] = {}
        for (topic, kind), histogram in list(self._context.traffic.sizes.items()):
            key = (topic, kind if kind != PLAIN else self._kind_of(topic))
            found, before = ranges_of(histogram), sizes.get(key)
            if before is not None:  # the topic became one of that kind
                counts = [a + b for a, b in zip(found.counts, before.counts, strict=True)]
                found = Ranges(found.bounds, counts, found.total + before.total)
            sizes[key] = found
        labelled = [(self._topic_labels(*key), ranges) for key, ranges in sizes.items()]
        yield families.counter(
            "rocketmq_messages_in", "Messages taken.",
            ((labels, sum(ranges.counts)) for labels, ranges in labelled),
        )  # fmt: skip
        yield families.counter(
            "rocketmq_throughput_in", "Bytes of the log that they take.",
            ((labels, ranges.total) for labels, ranges in labelled),
        )  # fmt: skip
        yield families.histogram("rocketmq_message_size", "Bytes of the log a message.", labelled)
        dead = list(self._context.traffic.dead_letters.items())
        yield families.counter(
            "rocketmq_send_to_dlq_messages", "Messages that were given up.",
            ((self._group_labels(topic, group), count) for (topic, group), count in dead),
        )  # fmt: skip

    def _outgoing(self, families: Families) -> Iterator[Metric]:
        labelled = [
            (
                {**self._group_labels(topic, group), "is_retry": _text(topic.startswith(RETRY_PREFIX))},
                given.messages,
                given.size,
            )
            for (topic, group), given in self._context.traffic.delivered_by_group().items()
        ]
        yield families.counter(
            "rocketmq_messages_out", "Messages given to consumers.",
            ((labels, messages) for labels, messages, _ in labelled),
        )  # fmt: skip
        yield families.counter(
            "rocketmq_throughput_out", "Bytes given to consumers.",
            ((labels, size) for labels, _, size in labelled),
        )  # fmt: skip

    def _clients(self, families: Families) -> Iterator[Metric]:
        clients = self._context.clients
        producers: Counter[tuple[str, str]] = Counter()
        for members in list(clients.producers.values()):
            producers.update(_program(client) for client in list(members.values()))
        yield families.gauge(
            "rocketmq_producer_connections", "Producers by language and version.",
            ((_program_labels(program), count) for program, count in producers.items()),
        )  # fmt: skip
        consumers: Counter[tuple[str, str, tuple[str, str]]] = Counter()
        for group in list(clients.consumers.values()):
            mode = _MODES[group.consume_type]
            consumers.update((group.name, mode, _program(client)) for client in list(group.members.values()))
        yield families.gauge(
            "rocketmq_consumer_connections", "Consumers by group, language and version.",
            (
                ({
                    **_program_labels(program),
                    "consumer_group": name,
                    "consume_mode": mode,
                    "is_system": _text(is_system_group(name)),
                }, count)
                for (name, mode, program), count in consumers.items()
            ),
        )  # fmt: skip

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
        yield families.histogram(
            "cometmq_append_latency_seconds", "Time to put what came in one go into log and queues.",
            [({}, ranges_of(context.traffic.append_times))],
        )  # fmt: skip
        yield families.histogram(
            "cometmq_flush_latency_seconds", "Time of a sync of the log.",
            [({}, ranges_of(store.flusher.sync_times))],
        )  # fmt: skip
        skipped = self._context.store.skipped
        yield families.counter(
            "cometmq_skipped_messages", "Offsets of queues that led to no whole message of their own.",
            one(skipped.messages),
        )  # fmt: skip
        yield families.counter(
            "cometmq_lost_log_bytes", "Bytes of the commit log that are missing or no records.",
            one(skipped.log_bytes),
        )  # fmt: skip
        yield families.counter(
            "cometmq_misleading_index_entries", "Entries of the index that led to no whole record.",
            one(skipped.index_entries),
        )  # fmt: skip
        yield families.gauge(
            "cometmq_store_trouble", "1 for what keeps the store from taking messages.",
            (({"trouble": trouble.name or ""}, 1) for trouble in store.flags.troubles),
        )  # fmt: skip

    # Labels

    def _kind_of(self, topic: str) -> str:
        config = self._context.topics.get(topic)
        declared = None if config is None else (config.attributes or {}).get(MESSAGE_TYPE)
        return FIFO if declared == "FIFO" else NORMAL

    def _topic_labels(self, topic: str, kind: str) -> Labels:
        is_system = self._context.topics.is_system_topic(topic)
        return {"topic": topic, "message_type": kind, "is_system": _text(is_system)}

    def _group_labels(self, topic: str, group: str) -> dict[str, str]:
        is_system = self._context.topics.is_system_topic(topic) or is_system_group(group)
        return {"topic": topic, "consumer_group": group, "is_system": _text(is_system)}


def _text(value: bool) -> str:
    return "true" if value else "false"


def _program(client: Client) -> tuple[str, str]:
    version = version_name(client.version) if client.version >= 0 else str(client.version)
    return client.language.lower(), version.lower()


def _program_labels(program: tuple[str, str]) -> dict[str, str]:
    language, version = program
    return {"language": language, "version": version, "protocol_type": "remoting"}
